"""The six families of the zoo: for each its base class, its members, and what a member declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from translate.config.declarations import (
    OPTIONAL,
    WIDTHS,
    Declaration,
    DecoderDeclaration,
    EncoderDeclaration,
    ScopeDeclaration,
    ScoreDeclaration,
    SelectionDeclaration,
    SummaryDeclaration,
    either,
)
from translate.models.decoders import DECODERS, Decoder
from translate.models.encoders import ENCODERS, Encoder
from translate.models.member import Member
from translate.models.scopes import SCOPES, Scope
from translate.models.scores import SCORES, Score
from translate.models.selections import SELECTIONS, Selection
from translate.models.summaries import SUMMARIES, Summary


@dataclass(frozen=True)
class Family:
    """Members of one kind."""

    title: str
    """The name of the table of its members."""
    base: type[Member]
    members: dict[str, type[Any]]
    row: type[Declaration]


# By the setting that names a member, as in model.encoder.kind.
FAMILIES = {
    "encoder.kind": Family("ENCODERS", Encoder, ENCODERS, EncoderDeclaration),
    "encoder.summary": Family("SUMMARIES", Summary, SUMMARIES, SummaryDeclaration),
    "decoder.kind": Family("DECODERS", Decoder, DECODERS, DecoderDeclaration),
    "attention.score": Family("SCORES", Score, SCORES, ScoreDeclaration),
    "attention.scope": Family("SCOPES", Scope, SCOPES, ScopeDeclaration),
    "attention.selection": Family("SELECTIONS", Selection, SELECTIONS, SelectionDeclaration),
}


def declare(member: type[Member], setting: str) -> Declaration:
    """The declarations of a class of the family that `setting` chooses from; a ValueError says what is wrong."""
    family = FAMILIES[setting]
    kinds = get_type_hints(family.row)
    given: dict[str, Any] = {"summary": (member.__doc__ or "").strip().split("\n")[0]}
    for name in [name for name in kinds if name not in given]:
        try:
            given[name] = TypeAdapter(kinds[name]).validate_python(getattr(member, name), strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ValueError(f"{name} = {getattr(member, name)!r}: {problem[0].lower()}{problem[1:]}") from None
    _check_words("supports", given["supports"], [option.rpartition(".")[2] for option in OPTIONAL[setting]])
    _check_words("width_divided_by_heads", given.get("width_divided_by_heads", ()), WIDTHS)
    return family.row(**given)


def _check_words(name: str, words: Sequence[str], known: Sequence[str]) -> None:
    for word in words:
        if word not in known:
            raise ValueError(f"{name} holds '{word}'; allowed: {either(known) if known else 'none'}")
