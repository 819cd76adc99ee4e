"""The benchmark of search: all its beams find the same, and the figures have names that others can read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bench_decode as script
import pytest
import soak_text
import torch

from translate.config import SearchConfig
from translate.decoding.packing import packed_for_search
from translate.machine import kernels_setting
from translate.models.seq2seq import Seq2Seq

SMALL = {"embedding": 6, "encoder": 5, "attention": 7, "decoder": 8}


@pytest.mark.parametrize("stop", ["exact", "first", "full"])
def test_the_textbook_beams_find_what_ours_finds(monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    monkeypatch.setattr(script, "WIDTHS", SMALL)
    model = script.random_model(40).double()
    with torch.no_grad():
        model.decoder.output.vocabulary.bias[3] = 1.0
    sentences = script.random_sources(40, 12)
    search = SearchConfig(beam=4, stop=stop, length_ratio=1.0, length_extra=2)
    found = script.ours(model, sentences, search, None)
    assert len({len(one.tokens) for one in found}) > 3
    for batch in (1, 5):
        again = script.ours(model, sentences, search, batch)
        assert [one.tokens for one in again] == [one.tokens for one in found]
    for together in (False, True):
        plain = script.textbook(model, sentences, search, together)
        assert [tokens for _, tokens in plain] == [one.tokens for one in found]


@pytest.mark.skipif(kernels_setting() == "reference", reason="the plain twins pack no weights")
def test_packing_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "WIDTHS", SMALL)
    model, sentences = script.random_model(40, packed=False).double(), script.random_sources(40, 5)
    search = SearchConfig(beam=3, length_ratio=1.0, length_extra=2)
    before = script.ours(model, sentences, search, None)
    names = {name: parameter.clone() for name, parameter in model.named_parameters()}
    packed = packed_for_search(model)
    assert packed.decoder.output.vocabulary.weight.stride() == (1, 40)
    for one, other in zip(before, script.ours(packed, sentences, search, None), strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-9)
    for name, parameter in packed.named_parameters():
        torch.testing.assert_close(parameter, names.get(name, names["decoder.embed.table.weight"]), rtol=0, atol=0)


def test_products_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One linear layer and one batched product, inside inference mode, where operations come undivided."""
    with torch.inference_mode(), script.Products() as seen:
        torch.nn.functional.linear(torch.ones(3, 4), torch.ones(5, 4), torch.ones(5))
        torch.matmul(torch.ones(2, 3, 4), torch.ones(2, 4, 6))
    assert [shapes[1:] for shapes in seen.shapes] == [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 6))]
    script.replay(seen.shapes)()


@pytest.mark.slow
def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(script, "WIDTHS", SMALL)
    monkeypatch.setattr(sys, "argv", ["x", "--json", "--rounds", "1", "--vocabulary", "200", "--sentences", "20"])
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["batch"]) for row in found["rows"]] == [
        (name, batch) for name in ("greedy", "beam 5") for batch in (1, 64, "tokens")
    ]
    for row in found["rows"]:
        assert row.keys() == script.Row.__dataclass_fields__.keys()
        assert row["sentences_per_second"] > 0
        assert row["share"] > 0
    assert found["ratios"].keys() == script.Ratios.__dataclass_fields__.keys()
    assert found["machine"]["threads"] == 1


@pytest.mark.slow
def test_fifty_thousand_lines_take_no_more_memory_than_ten_thousand(tmp_path: Path) -> None:
    found = soak_text.soak(soak_text.make_run(tmp_path / "run"), 50_000, 10_000)
    assert found["memory_mb_early"] > 50
    assert found["growth"] <= soak_text.MOST_GROWTH


def test_a_run_of_the_soak_is_sound(tmp_path: Path) -> None:
    from translate.run.directory import Run

    run = Run.open(soak_text.make_run(tmp_path / "run"))
    assert isinstance(run.load_model(), Seq2Seq)
