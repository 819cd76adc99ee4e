"""What settings know about the members of the zoo: the types of the rows in members.py.

The classes under translate/models declare all of it; their bases explain each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What every member declares."""

    name: str
    summary: str
    formula: str
    paper: str
    when: str
    supports: tuple[str, ...]
    reasons: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EncoderDeclaration(Declaration):
    width_multiple: int


@dataclass(frozen=True, kw_only=True)
class SummaryDeclaration(Declaration):
    reads_memory: bool
    informs: bool


@dataclass(frozen=True, kw_only=True)
class DecoderDeclaration(Declaration):
    attends: bool
    scores: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class ScoreDeclaration(Declaration):
    width_divided_by_heads: tuple[str, ...]
    needs_max_length: bool


@dataclass(frozen=True, kw_only=True)
class ScopeDeclaration(Declaration):
    blends: bool


@dataclass(frozen=True, kw_only=True)
class SelectionDeclaration(Declaration):
    takes_one_position: bool


# For each setting that names a member: the optional settings that the member supports or not.
OPTIONAL = {
    "encoder.kind": (
        *("encoder.layers", "encoder.residual", "encoder.layer_norm", "encoder.variational", "encoder.reverse"),
    ),
    "encoder.summary": (),
    "decoder.kind": (
        *("decoder.cell", "decoder.layers", "decoder.layer_norm", "decoder.variational", "decoder.input_feeding"),
        "attention.coverage",
    ),
    "attention.score": ("attention.heads", "attention.hops", "attention.per_feature"),
    "attention.scope": ("attention.window",),
    "attention.selection": ("attention.per_feature",),
}
# Those of them that accept any value, without effect, where the member does not support them.
WITHOUT_EFFECT = ("decoder.input_feeding", "attention.window")
# Widths that heads may have to share.
WIDTHS = ("encoder.output_width", "decoder.width", "attention.width")


def supports(member: Declaration, option: str) -> bool:
    """Whether a member works with an optional setting, given as in "encoder.layers"."""
    return option.rpartition(".")[2] in member.supports


def either(names: Iterable[str]) -> str:
    """'a', 'b' or 'c'."""
    *most, last = map(repr, names)
    return f"{', '.join(most)} or {last}" if most else last
