"""The benchmark of training: both loops are the same function, and the figures have the names that others read."""

from __future__ import annotations

import json
import sys

import bench_train as script
import numpy as np
import pytest
import torch

from translate.data.batches import Batch, collate
from translate.data.dataset import PairDataset
from translate.models.seq2seq import Seq2Seq

WIDTHS = ("model.embedding.width", "model.encoder.width", "model.attention.width", "model.decoder.width")
KEYS = {
    "name",
    "vocabulary",
    "threads",
    "flops_per_token",
    "tokens_per_second",
    "textbook_tokens_per_second",
    "ratio",
    "peak_share",
    "best_share",
    "peak_memory_mb",
    "loader_share",
}


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dict(zip(WIDTHS, (6, 5, 7, 8), strict=True))
    monkeypatch.setattr(script, "ROWS", {name: {**row, **small} for name, row in script.ROWS.items()})
    monkeypatch.setattr(script, "MOST_PAIRS", 300)


def some_batch() -> Batch:
    pairs = PairDataset.from_pairs([([4, 5, 6], [7, 8]), ([9], [10, 11, 12, 4]), ([5] * 6, [6])])

    return collate(pairs, np.arange(3))


@pytest.mark.parametrize("name", script.ROWS)
def test_the_textbook_loop_is_our_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In value and in gradient, or the ratio of their times would say nothing."""
    shrink(monkeypatch)
    config = script.settings(script.ROWS[name])
    torch.manual_seed(0)
    model = Seq2Seq(config.model, 13, 13, 20).double().eval()
    losses = [loss(model, some_batch()) for loss in (script.ours, script.textbook)]
    torch.testing.assert_close(losses[0], losses[1])
    mine, theirs = (torch.autograd.grad(loss, list(model.parameters())) for loss in losses)
    torch.testing.assert_close(mine, theirs)


def test_every_round_has_sentences_of_all_lengths() -> None:
    """The longer the sentences, the greater the ratio: rounds of chance lengths would differ by their luck."""
    rounds = script.spread_batches(script.settings(script.ROWS["plain"]), script.random_pairs(50), 5)
    assert [len(batches) for batches in rounds] == [4] * 5
    lengths = np.array([[max(batch.src.size(1), batch.tgt_in.size(1)) for batch in batches] for batches in rounds])
    assert (np.diff(lengths, axis=1) > 0).all()
    assert (lengths.max(axis=0)[:-1] <= lengths.min(axis=0)[1:]).all()  # a quarter of the lengths each


def test_rows_have_the_names_that_scripts_rely_on() -> None:
    assert set(script.ROWS) == {"bahdanau", "conditional", "luong", "luong+feeding", "plain", "recipe"}
    assert script.Row.__dataclass_fields__.keys() == KEYS


@pytest.mark.slow
def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr(script, "sgemm_peak", lambda: 1e11)
    arguments = ["bench_train", "--json", "--rounds", "1", "--vocabularies", "40", "--only", "luong", "recipe"]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["rows"]] == ["luong", "recipe"]
    for row in found["rows"]:
        assert row.keys() == KEYS
        assert all(row[key] > 0 for key in KEYS - {"name", "loader_share", "peak_memory_mb"})
    assert found["machine"]["torch"] == torch.__version__


@pytest.mark.slow
@pytest.mark.parametrize("mode", [("--forcing", "0.5"), ("--precision", "bf16")])
def test_it_tells_what_another_way_costs(
    mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shrink(monkeypatch)
    arguments = ["bench_train", *mode, "--rounds", "1", "--vocabularies", "40", "--only", "luong"]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("luong")
    assert line.count("tokens/s") == 2
    assert line.endswith("times as long")
