"""Every choice of the configuration has its class and every class its choice, with what `translate zoo` shows of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from translate.config import AttentionConfig, DecoderConfig, EncoderConfig, Section, choices
from translate.models.attention import SCOPES, SELECTIONS
from translate.models.decoders import DECODERS
from translate.models.encoders import ENCODERS, SUMMARIES
from translate.models.recurrence import CELLS, Cell
from translate.models.scores import SCORES

TABLES: list[tuple[Mapping[str, Any], type[Section], str]] = [
    (ENCODERS, EncoderConfig, "kind"),
    (SUMMARIES, EncoderConfig, "summary"),
    (DECODERS, DecoderConfig, "kind"),
    (SCORES, AttentionConfig, "score"),
    (SCOPES, AttentionConfig, "scope"),
    (SELECTIONS, AttentionConfig, "selection"),
    (CELLS, DecoderConfig, "cell"),
]
MEMBERS = [
    pytest.param(member, id=f"{setting}-{name}")
    for table, _, setting in TABLES
    if table is not CELLS
    for name, member in table.items()
]


@pytest.mark.parametrize(("table", "section", "setting"), TABLES, ids=[name for _, _, name in TABLES])
def test_a_table_is_what_the_configuration_offers(
    table: Mapping[str, Any], section: type[Section], setting: str
) -> None:
    """In the same order too, which is the one in which they are shown."""
    assert tuple(table) == choices(section, setting)
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_says_what_it_is(member: type) -> None:
    assert member.__doc__ is not None
    assert member.__doc__.strip()
    for name in ("formula", "paper", "when"):
        # On the class itself: an inherited formula would be another's.
        assert isinstance(member.__dict__.get(name), str), f"{member.__name__}.{name}"
        assert member.__dict__[name].strip()


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS.keys())
def test_a_cell_says_where_it_comes_from(cell: Cell) -> None:
    assert cell.update.__doc__ is not None
    assert re.search(r"[12]\d\d\d", cell.update.__doc__), "the paper's year"
