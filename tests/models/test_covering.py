"""The models that other tests are run on: that no setting, value or pair is missing, and which pairs are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from tests.models.covering import (
    DEFAULTS,
    NUMBERS,
    SECTIONS,
    SETTINGS,
    Pair,
    Setting,
    all_pairs,
    configure,
    cover,
    is_idle,
    one_at_a_time,
    pairs_of,
)
from translate.config import ModelConfig, choices
from translate.config.declarations import OPTIONAL, WITHOUT_EFFECT, supports
from translate.config.members import DECODERS, MEMBERS, SCORES


def pairs(some: Iterable[Setting], others: Iterable[Setting]) -> set[Pair]:
    """Every one of the first with every one of the second, in the order of SETTINGS."""
    names = list(SETTINGS)
    return {(a, b) if names.index(a[0]) < names.index(b[0]) else (b, a) for a, b in product(some, others)}


def values(name: str, but: Any = None) -> list[Setting]:
    return [(name, value) for value in SETTINGS[name] if value != but]


def those(setting: str, condition: Callable[[Any], bool]) -> list[Setting]:
    """The members of a family that declare something."""
    return [(setting, name) for name in SETTINGS[setting] if condition(MEMBERS[setting][name])]


def unsupported(setting: str, option: str) -> set[Pair]:
    """The members that do not support an option, with each value of it that asks for something."""
    return pairs(those(setting, lambda member: not supports(member, option)), values(option, but=DEFAULTS[option]))


WITHOUT_ATTENTION = those("decoder.kind", lambda decoder: not decoder.attends)
# No model can have both of these: the configuration refuses it, for reasons that test_refusals.py reads.
REFUSED = {
    *(
        pair
        for setting, options in OPTIONAL.items()
        for option in options
        if option not in WITHOUT_EFFECT
        for pair in unsupported(setting, option)
    ),
    (("encoder.layers", 1), ("encoder.residual", True)),
    *pairs(those("encoder.summary", lambda summary: not summary.informs), WITHOUT_ATTENTION),
    *pairs(WITHOUT_ATTENTION, [("decoder.copy", True)]),
    (("attention.heads", 2), ("attention.per_feature", True)),
    *pairs(
        those("attention.scope", lambda scope: scope.blends),
        those("attention.selection", lambda selection: selection.takes_one_position),
    ),
    *(
        ((name, value), ("decoder.kind", decoder.name))
        for decoder in DECODERS.values()
        if decoder.scores is not None
        for name in ("attention.score", *OPTIONAL["attention.score"])
        for value in SETTINGS[name]
        if not any(
            score == value if name == "attention.score" else value == DEFAULTS[name] or supports(SCORES[score], name)
            for score in decoder.scores
        )
    ),
}
# In these the first has nothing to decide: without attention, a window or a vector that is fed.
IDLE = {
    *pairs((item for name in SETTINGS if name.startswith("attention.") for item in values(name)), WITHOUT_ATTENTION),
    *(
        pair
        for setting, option in (("attention.scope", "attention.window"), ("decoder.kind", "decoder.input_feeding"))
        for pair in pairs(those(setting, lambda member, option=option: not supports(member, option)), values(option))
    ),
}


def test_what_is_refused_is_known() -> None:
    """Of today's members, in words, because the sets above are derived from what members declare."""
    known = {
        *product([("encoder.kind", "bigru"), ("encoder.kind", "bilstm")], [("encoder.reverse", True)]),
        (("encoder.summary", "zero"), ("decoder.kind", "plain")),
        (("attention.score", "location"), ("attention.per_feature", True)),
        (("attention.selection", "hard_reinforce"), ("attention.per_feature", True)),
        *product(
            [("attention.scope", "hybrid")], [("attention.selection", f"hard_{how}") for how in ("gumbel", "reinforce")]
        ),
        *product([("attention.score", "static"), ("attention.score", "linear")], [("attention.hops", 2)]),
        *((("attention.score", score), ("decoder.kind", "tutorial")) for score in ("additive", "dual", "static")),
        (("attention.per_feature", True), ("decoder.kind", "tutorial")),  # whose only score is location
    }
    assert known <= REFUSED
    assert (("attention.score", "location"), ("decoder.kind", "tutorial")) not in REFUSED
    assert (("encoder.kind", "gru"), ("encoder.reverse", True)) not in REFUSED
    assert (("decoder.kind", "bahdanau"), ("decoder.input_feeding", False)) in IDLE
    assert (("decoder.kind", "luong"), ("decoder.input_feeding", False)) not in IDLE


def test_every_setting_of_a_model_is_varied() -> None:
    fields = {f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields}
    assert set(ModelConfig.model_fields) == set(SECTIONS)
    assert fields == SETTINGS.keys() | NUMBERS.keys()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_choice_of_a_setting_is_varied(name: str) -> None:
    section, key = name.split(".")
    annotation = SECTIONS[section].model_fields[key].annotation
    if choices(SECTIONS[section], key):
        assert set(SETTINGS[name]) == set(choices(SECTIONS[section], key))
    elif annotation is bool:
        assert set(SETTINGS[name]) == {True, False}
    assert len(SETTINGS[name]) > 1


@pytest.mark.parametrize("name", SETTINGS)
def test_defaults_are_those_of_the_configuration(name: str) -> None:
    """But for the window, which has to be narrower than the sentences of these tests."""
    section, key = name.split(".")
    if name != "attention.window":
        assert SECTIONS[section].model_fields[key].default == DEFAULTS[name]


def test_every_value_is_at_work_in_a_model_of_its_own() -> None:
    at_work = {(name, value) for row in one_at_a_time() for name, value in row.items() if not is_idle(name, row)}
    assert at_work >= {(name, value) for name, values in SETTINGS.items() for value in values[1:]}


def test_every_two_values_meet_unless_they_are_refused() -> None:
    rows, impossible = cover()
    assert impossible == REFUSED | IDLE
    met = {pair for row in rows for pair in pairs_of(row)}
    assert met == set(all_pairs()) - impossible
    most, second = sorted(map(len, SETTINGS.values()))[:-3:-1]
    fewest = most * second  # each of one setting's values has to meet each of another's
    assert len(rows) <= 1.5 * fewest, "the greedy search has become worse: every model costs a fifth of a second"
    for row in rows:
        configure(row)
