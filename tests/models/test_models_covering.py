"""The models that other tests are run on: that no setting, value or pair is missing, and which pairs are refused."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_origin

import pytest
from covering import (
    DEFAULTS,
    NUMBERS,
    SECTIONS,
    SETTINGS,
    all_pairs,
    configure,
    cover,
    is_idle,
    one_at_a_time,
    pairs_of,
)

from translate.config import ModelConfig, choices

# No model can have both of these: the configuration refuses it, for reasons that test_models_refusals.py reads.
REFUSED = {
    *product([("encoder.kind", "bigru"), ("encoder.kind", "bilstm")], [("encoder.reverse", True)]),
    (("encoder.layers", 1), ("encoder.residual", True)),
    (("encoder.summary", "zero"), ("decoder.kind", "plain")),
    (("decoder.kind", "plain"), ("decoder.copy", True)),
    (("attention.score", "location"), ("attention.per_feature", True)),
    (("attention.selection", "hard_reinforce"), ("attention.per_feature", True)),
    (("attention.heads", 2), ("attention.per_feature", True)),
    (("attention.scope", "hybrid"), ("attention.selection", "hard_gumbel")),
    (("attention.scope", "hybrid"), ("attention.selection", "hard_reinforce")),
    *product([("attention.score", "static"), ("attention.score", "linear")], [("attention.hops", 2)]),
    *(
        (("attention.score", score), ("decoder.kind", "tutorial"))
        for score in SETTINGS["attention.score"]
        if score != "location"
    ),
    (("attention.per_feature", True), ("decoder.kind", "tutorial")),  # whose only score is location
}
# In these the first has nothing to decide: without attention, a window or a vector that is fed.
IDLE = {
    *(
        ((name, value), ("decoder.kind", "plain"))
        for name, values in SETTINGS.items()
        if name.startswith("attention.")
        for value in values
    ),
    *product([("attention.scope", "global")], [("attention.window", 2), ("attention.window", 1)]),
    *(
        (("decoder.kind", kind), ("decoder.input_feeding", feeding))
        for kind in ("bahdanau", "conditional", "tutorial", "plain")
        for feeding in (True, False)
    ),
}


def test_every_setting_of_a_model_is_varied() -> None:
    fields = {f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields}
    assert set(ModelConfig.model_fields) == set(SECTIONS)
    assert fields == SETTINGS.keys() | NUMBERS.keys()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_choice_of_a_setting_is_varied(name: str) -> None:
    section, key = name.split(".")
    annotation = SECTIONS[section].model_fields[key].annotation
    if get_origin(annotation) is Literal:
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
    assert len(rows) <= 66, "the greedy search has become worse: every model costs a fifth of a second"
    for row in rows:
        configure(row)
