"""The benchmark of the data path: its text, its figures, and that it runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import bench_data as script
import pytest

SMALL = script.Row(
    pairs=1000,
    generate_seconds=0.1,
    learn_seconds=2.0,
    learn_memory=100.0,
    prepare_seconds=0.5,
    prepare_memory=80.0,
    order_seconds=0.01,
    batches_seconds=0.2,
    batches_memory=300.0,
)
LARGE = script.Row(
    pairs=10_000,
    generate_seconds=1.0,
    learn_seconds=8.0,
    learn_memory=150.0,
    prepare_seconds=5.5,
    prepare_memory=88.0,
    order_seconds=0.09,
    batches_seconds=0.2,
    batches_memory=390.0,
)


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "BLOCK", 100)
    for num_pairs in (150, 220):
        script.write_corpus(tmp_path / str(num_pairs), num_pairs)
    for language in script.LANGUAGES:
        few, many = ((tmp_path / str(count) / f"train.{language}").read_text().split("\n") for count in (150, 220))
        assert (len(few), len(many)) == (151, 221)
        assert few[:150] == many[:150]
        assert len(set(many)) > 200
    sides = [(tmp_path / "220" / f"train.{language}").read_text().split("\n") for language in script.LANGUAGES]
    assert all(len(src.split()) == len(tgt.split()) for src, tgt in zip(*sides, strict=True))


def test_words_have_translations_that_move_a_little() -> None:
    [(sources, targets)] = script.generate(300)
    translation = dict(zip(*(script.words_of(side) for side in range(2)), strict=True))
    moved = 0
    for source, target in zip(sources, targets, strict=True):
        words = [translation.get(word, word) for word in source[:-1].lower().split()]
        assert sorted(words) == sorted(target[:-1].lower().split())
        moved += words != target[:-1].lower().split()
    assert moved > 200


def test_the_figures_are_related_and_shown() -> None:
    assert SMALL.pairs_per_second == 2000
    assert LARGE.microseconds("prepare") == pytest.approx(550)
    wanted = {
        "learn_memory": 1.5,
        "prepare_memory": 1.1,
        "batches_memory": 1.3,
        "learn_time_per_pair": 0.4,
        "prepare_time_per_pair": 1.1,
        "order_time_per_pair": 0.9,
    }
    assert script.ratios(SMALL, LARGE) == pytest.approx(wanted)
    head, *lines = script.table([SMALL, LARGE]).split("\n")
    assert head.split()[:2] == ["pairs", "learn"]
    assert lines[1].split() == ["10,000", "8.0", "150", "5.50", "1,818", "550.0", "88", "0.09", "0.20", "390"]
    assert len({len(line) for line in (head, *lines)}) == 1
    assert "peak memory 1.10 x (at most 1.5), time per pair 1.10 x (at most 1.2)" in script.verdict(SMALL, LARGE)


def test_sizes() -> None:
    assert script.sizes_of("1000,200,1000") == [200, 1000]
    with pytest.raises(argparse.ArgumentTypeError, match="less than 100"):
        script.sizes_of("1000,99")


@pytest.mark.slow
def test_it_runs_through_all_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--sizes", "300,600", "--work", str(tmp_path), "--repeats", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [row["pairs"] for row in figures["rows"]] == [300, 600]
    assert all(value > 0 for row in figures["rows"] for value in row.values())
    assert all(row["prepare_memory"] > 20 for row in figures["rows"])
    assert set(figures["ratios"]) == set(script.ratios(SMALL, LARGE))
    assert (tmp_path / "600" / "train.arrow").is_file()
