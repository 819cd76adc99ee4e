"""Every choice of the configuration has its class and every class its choice, with what `translate zoo` shows of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tests.models.covering import NUMBERS, SECTIONS, SETTINGS, complete, configure
from tests.models.small_models import build
from translate.config import DecoderConfig, EncoderConfig, choices
from translate.config.declarations import OPTIONAL, WIDTHS
from translate.config.members import MEMBERS
from translate.models.encoders import ENCODERS
from translate.models.families import FAMILIES, declare
from translate.models.recurrence import CELLS, Cell
from translate.models.scores import SCORES
from translate.models.seq2seq import initialise

NAMES = [(setting, name) for setting in FAMILIES for name in SETTINGS[setting]]
every_member = pytest.mark.parametrize(("setting", "name"), NAMES)


@pytest.mark.parametrize("setting", FAMILIES)
def test_a_table_is_what_the_configuration_offers(setting: str) -> None:
    """In the same order too, which is the one in which they are shown."""
    section, key = setting.split(".")
    table = FAMILIES[setting].members
    assert tuple(table) == tuple(MEMBERS[setting]) == choices(SECTIONS[section], key)
    assert len(set(table.values())) == len(table)


def test_cells_are_what_the_configuration_offers() -> None:
    assert tuple(CELLS) == choices(DecoderConfig, "cell")


@every_member
def test_a_member_says_what_it_is(setting: str, name: str) -> None:
    member = FAMILIES[setting].members[name]
    assert issubclass(member, FAMILIES[setting].base)
    assert member.__doc__ is not None
    assert member.__doc__.strip()
    for declared in ("name", "formula", "paper", "when"):
        # On the class itself: an inherited formula would be another's.
        assert isinstance(member.__dict__.get(declared), str), f"{member.__name__}.{declared}"
        assert member.__dict__[declared].strip()
    assert member.name == name


@every_member
def test_settings_know_what_a_member_declares(setting: str, name: str) -> None:
    declared = declare(FAMILIES[setting].members[name], setting)
    assert declared == MEMBERS[setting][name], "run python scripts/write_members.py"
    options = {option.rpartition(".")[2] for option in OPTIONAL[setting]}
    assert set(declared.supports) <= options
    assert not set(declared.reasons) & set(declared.supports)
    assert set(declared.reasons) <= options | {"score"}
    assert set(getattr(declared, "width_divided_by_heads", ())) <= set(WIDTHS)


@pytest.mark.parametrize("kind", SETTINGS["encoder.kind"])
def test_the_memory_is_as_wide_as_declared(kind: str) -> None:
    config = configure({"encoder.kind": kind})
    assert build(config).encoder.output_width == config.encoder.output_width
    assert config.encoder.output_width == NUMBERS["encoder.width"] * MEMBERS["encoder.kind"][kind].width_multiple


@pytest.mark.parametrize("kind", SETTINGS["decoder.kind"])
def test_a_decoder_has_attention_as_declared(kind: str) -> None:
    row = complete({"decoder.kind": kind})
    assert row is not None
    config = configure(row)
    assert (build(config).decoder.attention is not None) == config.attends


def test_a_declaration_of_the_wrong_type_is_refused() -> None:
    """A comma that is left out makes a text of a list of one."""
    wrong: dict[str, Any] = {"supports": "heads", "needs_max_length": "no", "reasons": ["heads"], "paper": 1}
    for name, value in wrong.items():
        member = type("Wrong", (SCORES["dot"],), {name: value})
        with pytest.raises(ValueError, match=name):
            declare(member, "attention.score")


@pytest.mark.parametrize(("name", "words"), [("supports", ("heads", "hoops")), ("width_divided_by_heads", ("width",))])
def test_a_declaration_of_an_unknown_word_is_refused(name: str, words: tuple[str, ...]) -> None:
    member = type("Wrong", (SCORES["dot"],), {name: words})
    with pytest.raises(ValueError, match=f"{name} holds '{words[-1]}'"):
        declare(member, "attention.score")


@pytest.mark.parametrize("name", ["readings.py", "decoder_readings.py"])
def test_a_reading_knows_nothing_of_the_package(name: str) -> None:
    """Else a mistake could be in both."""
    assert "translate" not in re.findall(r"^\s*(?:from|import) (\w+)", Path(__file__).with_name(name).read_text(), re.M)


def test_a_member_has_the_last_word_on_its_parameters() -> None:
    class Started(ENCODERS["gru"]):  # type: ignore[misc]
        def initialise(self) -> None:
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.25)

    encoder = Started(3, EncoderConfig(width=4))
    initialise(nn.ModuleList([encoder]))
    assert all((parameter == 0.25).all() for parameter in encoder.parameters())


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS.keys())
def test_a_cell_says_where_it_comes_from(cell: type[Cell]) -> None:
    assert cell.__doc__ is not None
    assert re.search(r"[12]\d\d\d", cell.__doc__), "the paper's year"
