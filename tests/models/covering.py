"""The settings of a model, and few models in which every two values of different settings meet."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

from pydantic import ValidationError

from translate.config import (
    AttentionConfig,
    DecoderConfig,
    EmbeddingConfig,
    EncoderConfig,
    ModelConfig,
    Section,
    choices,
)
from translate.config.members import DECODERS, MEMBERS, SCOPES
from translate.models.plugins import loaded_plugins

Setting = tuple[str, Any]  # a dotted name and a value
Pair = tuple[Setting, Setting]  # in the order of SETTINGS
Row = dict[str, Any]  # a value for every setting

SECTIONS: dict[str, type[Section]] = {
    "embedding": EmbeddingConfig,
    "encoder": EncoderConfig,
    "attention": AttentionConfig,
    "decoder": DecoderConfig,
}


def members(setting: str) -> tuple[str, ...]:
    """The members that a setting chooses from, its default first."""
    section, key = setting.split(".")
    default = SECTIONS[section].model_fields[key].default
    return (default, *(name for name in choices(SECTIONS[section], key) if name != default))


def in_tree(setting: str) -> list[str]:
    """The members that are no plugin's: each of them has an independent reading of its formula in these tests."""
    plugged = {member for plugin in loaded_plugins() for member in plugin.members}
    return [name for name in MEMBERS[setting] if f"{setting}={name}" not in plugged]


# The first of each is the one the others are varied against.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "embedding.tied": ("two", "none", "three"),
    "encoder.kind": members("encoder.kind"),
    "encoder.layers": (1, 2),
    "encoder.residual": (False, True),
    "encoder.layer_norm": (False, True),
    "encoder.variational": (False, True),
    "encoder.word_dropout": (0.0, 0.2),
    "encoder.self_attention": (False, True),
    "encoder.reverse": (False, True),
    "encoder.summary": members("encoder.summary"),
    "attention.score": members("attention.score"),
    "attention.scope": members("attention.scope"),
    "attention.selection": members("attention.selection"),
    "attention.window": (2, 1),
    "attention.heads": (1, 2),
    "attention.hops": (1, 2),
    "attention.per_feature": (False, True),
    "attention.coverage": (False, True),
    "decoder.kind": members("decoder.kind"),
    "decoder.cell": ("gru", "lstm"),
    "decoder.layers": (1, 2),
    "decoder.layer_norm": (False, True),
    "decoder.variational": (False, True),
    "decoder.word_dropout": (0.0, 0.2),
    "decoder.input_feeding": (True, False),
    "decoder.copy": (False, True),
}
DEFAULTS: Row = {name: values[0] for name, values in SETTINGS.items()}

# A different size for every dimension, so that a swapped axis fails; two heads divide all that they share.
EMBEDDING, ENCODER, ATTENTION, DECODER = 5, 6, 10, 8
# What is a number and not a choice.
NUMBERS: Row = {
    "embedding.width": EMBEDDING,
    "embedding.dropout": 0.3,
    "encoder.width": ENCODER,
    "encoder.dropout": 0.3,
    "attention.width": ATTENTION,
    "attention.coverage_loss": 0.1,
    "attention.temperature": 1.0,
    "attention.temperature_end": 0.3,
    "attention.entropy": 0.01,
    "decoder.width": DECODER,
    "decoder.dropout": 0.3,
}
_PARTS = {name: name.split(".") for name in (*NUMBERS, *SETTINGS)}


def configure(row: Row) -> ModelConfig:
    """The configuration of a row; what it leaves open is as in DEFAULTS and NUMBERS."""
    tree: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in {**NUMBERS, **DEFAULTS, **row}.items():
        section, key = _PARTS[name]
        tree[section][key] = value
    return ModelConfig.model_validate(tree)


def is_legal(row: Row) -> bool:
    try:
        configure(row)
    except ValidationError:
        return False
    return True


def is_idle(name: str, row: Row) -> bool:
    """Whether a setting has nothing to decide in this row, so that a pair with it shows nothing."""
    if name.startswith("attention."):
        without = not DECODERS[row["decoder.kind"]].attends
        return without or (name == "attention.window" and "window" not in SCOPES[row["attention.scope"]].supports)
    return name == "decoder.input_feeding" and "input_feeding" not in DECODERS[row["decoder.kind"]].supports


def complete(given: Row) -> Row | None:
    """The legal row nearest to the defaults in which all that is given is at work; None if there is none near."""
    others = [name for name in SETTINGS if name not in given]
    for changes in range(3):
        for names in combinations(others, changes):
            for values in product(*(SETTINGS[name][1:] for name in names)):
                row = {**DEFAULTS, **given, **dict(zip(names, values, strict=True))}
                if not any(is_idle(name, row) for name in given) and is_legal(row):
                    return row
    return None


def all_pairs() -> Iterator[Pair]:
    """Every two values of two settings."""
    for one, other in combinations(SETTINGS, 2):
        for value, other_value in product(SETTINGS[one], SETTINGS[other]):
            yield (one, value), (other, other_value)


def pairs_of(row: Row) -> Iterator[Pair]:
    """The pairs that meet in a row, both at work."""
    return combinations([item for item in row.items() if not is_idle(item[0], row)], 2)


def one_at_a_time() -> list[Row]:
    """The defaults, and each other value with as few more changes as it needs."""
    rows = [DEFAULTS]
    for name, values in SETTINGS.items():
        for value in values[1:]:
            row = complete({name: value})
            assert row is not None, f"no model can have {name} = {value}"
            rows.append(row)
    return rows


@cache
def cover() -> tuple[list[Row], set[Pair]]:
    """Rows in which all possible pairs meet, and the pairs that are impossible.

    Greedy: each row begins with a pair that is still missing, and is then changed, one setting after the other, to
    whatever brings it the most pairs that are missing.
    """
    nearest = {pair: complete(dict(pair)) for pair in all_pairs()}
    missing = {pair: row for pair, row in nearest.items() if row is not None}
    options = [(name, value) for name, values in SETTINGS.items() for value in values]
    rows: list[Row] = []
    while missing:
        seed, row = next(iter(missing.items()))
        gain, before = _met(row, missing), 0
        while gain > before:
            before = gain
            for name, value in options:
                changed = {**row, name: value}
                met = _met(changed, missing)
                if met > gain and seed in pairs_of(changed) and is_legal(changed):
                    row, gain = changed, met
        rows.append(row)
        for pair in pairs_of(row):
            missing.pop(pair, None)
    return rows, {pair for pair, row in nearest.items() if row is None}


def _met(row: Row, missing: Container[Pair]) -> int:
    return sum(map(missing.__contains__, pairs_of(row)))


def describe(row: Row) -> str:
    """What differs from the defaults, short enough for the name of a test."""
    differences = [f"{name}={value}" for name, value in row.items() if value != DEFAULTS[name]]
    return ",".join(differences) or "defaults"
