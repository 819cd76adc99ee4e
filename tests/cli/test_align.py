"""Alignments by two runs, in every format, and scores of anybody's links."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from translate.alignment.formats import Link, read_alignments, read_pharaoh, read_records

pytestmark = pytest.mark.slow


@pytest.fixture
def given(tiny_run: Path) -> list[str | Path]:
    """Arguments that name both sides of the test set."""
    files = tiny_run.parent / "data"
    return ["--source", files / "test.en", "--target", files / "test.fr"]


def links_of(text: str) -> list[set[Link]]:
    return [{Link(*map(int, link.split("-"))) for link in line.split()} for line in text.split("\n")[:-1]]


def test_two_directions_are_joined(
    answer: Callable[..., str], tiny_run: Path, back_run: Path, given: list[str | Path]
) -> None:
    forward = links_of(answer("align", tiny_run, *given))
    there = ["--source", given[3], "--target", given[1]]
    backward = [{Link(j, i) for i, j in links} for links in links_of(answer("align", back_run, *there))]
    joined = {
        method: links_of(answer("align", tiny_run, *given, "--reverse", back_run, "--symmetrize", method))
        for method in ("intersect", "union", "grow-diag", "grow-diag-final-and")
    }
    assert joined["intersect"] == [one & other for one, other in zip(forward, backward, strict=True)]
    assert joined["union"] == [one | other for one, other in zip(forward, backward, strict=True)]
    assert sum(map(len, joined["intersect"])) < sum(map(len, joined["union"])), "two runs that agree show nothing"
    for inner, middle, outer in zip(*(joined[name] for name in ("intersect", "grow-diag", "union")), strict=True):
        assert inner <= middle <= outer


def test_every_format_says_the_same(
    answer: Callable[..., str], tiny_run: Path, back_run: Path, given: list[str | Path], tmp_path: Path
) -> None:
    arguments = ("align", tiny_run, *given, "--reverse", back_run)
    paths = {}
    for kind in ("pharaoh", "probabilities", "gold", "naacl", "json", "npz"):
        paths[kind] = tmp_path / kind
        answer(*arguments, "--format", kind, "--output", paths[kind])
    files = {kind: read_alignments(path, "auto", sentences=12) for kind, path in paths.items()}
    expected = [set(links) for links in read_pharaoh(paths["pharaoh"])]
    assert all([set(gold.possible) for gold in file.sentences] == expected for file in files.values())
    marked = [gold.sure for gold in files["gold"].sentences]
    assert any(sure != links for sure, links in zip(marked, expected, strict=True))
    assert all([gold.sure for gold in files[kind].sentences] == marked for kind in ("naacl", "json", "npz"))
    chances = [gold.probabilities for gold in files["probabilities"].sentences]
    assert all([gold.probabilities for gold in files[kind].sentences] == chances for kind in ("naacl", "json", "npz"))
    for record in read_records(paths["npz"]):
        there, back = record["word_weights"], record["reverse_word_weights"]
        assert there.shape == (len(record["target_words"]), len(record["source_words"]) + 1)
        assert back.shape == (len(record["source_words"]), len(record["target_words"]) + 1)
        for (i, j), chance in zip(record["links"], record["probabilities"], strict=True):
            assert chance == pytest.approx((there[j, i] + back[i, j]) / 2, abs=1e-5)


def test_a_shift_and_a_prior_move_links(answer: Callable[..., str], tiny_run: Path, given: list[str | Path]) -> None:
    matrices = (*given, "--format", "json")  # so small a model has links that a shift leaves where they are
    plain = answer("align", tiny_run, *matrices)
    assert answer("align", tiny_run, *matrices, "--shift", "0", "--diagonal", "0") == plain
    for change in (("--shift", "1"), ("--shift", "-1"), ("--diagonal", "30"), ("--extract", "threshold")):
        changed = answer("align", tiny_run, *matrices, *change)
        assert changed != plain
        for one, other in zip(changed.split("\n")[:-1], plain.split("\n")[:-1], strict=True):
            assert json.loads(one)["weights"] == json.loads(other)["weights"], "what the model gave stays"
    near = links_of(answer("align", tiny_run, *given, "--diagonal", "1000"))
    records = [json.loads(line) for line in answer("align", tiny_run, *given, "--format", "json").split("\n")[:-1]]
    for links, record in zip(near, records, strict=True):  # so strong a prior leaves nothing else
        num_src, num_tgt = len(record["source_words"]), len(record["target_words"])
        for i, j in links:
            assert abs((i + 0.5) / num_src - (j + 0.5) / num_tgt) <= 0.5 / num_src + 1e-9


def test_shift_auto_says_what_it_chose(
    command_line: Callable[..., Any], tiny_run: Path, back_run: Path, given: list[str | Path]
) -> None:
    result = command_line("align", tiny_run, *given, "--reverse", back_run, "--shift", "auto")
    assert result.code == 0, result.err
    said = next(line for line in result.err.split("\n") if line.startswith("--shift auto: "))
    chosen = int(said.split(": ")[1].split(",")[0])
    shown = dict(pair.split(": ") for pair in said.partition("(")[2].rstrip(")").split(", "))
    assert shown.keys() == {"-1", "0", "1", "2"}
    assert float(shown[str(chosen)]) == max(map(float, shown.values()))
    same = command_line("align", tiny_run, *given, "--reverse", back_run, "--shift", str(chosen))
    assert same.out == result.out


def test_both_levels(answer: Callable[..., str], tiny_run: Path, given: list[str | Path]) -> None:
    text = answer("align", tiny_run, *given, "--format", "json", "--level", "both")
    pieces = links_of(answer("align", tiny_run, *given, "--level", "pieces"))
    for line, links in zip(text.split("\n")[:-1], pieces, strict=True):
        record = json.loads(line)
        assert links == {Link(*link) for link in record["piece_links"]}
        weights = np.array(record["weights"])
        for target, row in enumerate(weights[:-1]):
            greatest = set(np.flatnonzero(row >= row.max() - 1e-6).tolist())  # of rounded weights several may be
            linked = {link.source for link in links if link.target == target}
            assert linked <= greatest
            assert linked or len(record["source_pieces"]) - 1 in greatest


def test_characters_are_units_on_request(
    command_line: Callable[..., Any], tiny_run: Path, back_run: Path, given: list[str | Path], tmp_path: Path
) -> None:
    own = given[:2]
    for more in ((), ("--reverse", back_run)):
        for sides in (own, given):
            arguments = ("align", tiny_run, *sides, "--units", "characters", "--format", "json", *more)
            result = command_line(*arguments)
            assert result.code == 0, result.err
            for line in result.out.split("\n")[:-1]:
                record = json.loads(line)
                for side in ("source", "target"):
                    spans, units = record[f"{side}_spans"], record[f"{side}_words"]
                    assert [record[side][begin:end] for begin, end in spans] == units
                    assert spans == sorted(spans)
                    assert "".join(units) == record[side].replace(" ", "")
                assert len(record["source_words"]) >= len(record["source"].split(" "))
    # A run whose source language writes no spaces needs no option, and says so.
    chinese = tmp_path / "chinese"
    shutil.copytree(tiny_run, chinese)
    config = chinese / "config.toml"
    config.write_text(config.read_text().replace('source_lang = "en"', 'source_lang = "zh"'))
    result = command_line("align", chinese, *given, "--format", "json")
    assert "zh is linked by characters" in result.err
    records = [json.loads(line) for line in result.out.split("\n")[:-1]]
    assert any(len(record["source_words"]) > len(record["source"].split(" ")) for record in records)
    assert all(len(record["target_words"]) == len(record["target"].split(" ")) for record in records)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--symmetrize", "union"], "--reverse"),
        (["--threshold", "0.2"], "--threshold goes with --extract threshold or both"),
        (["--gold-base", "1"], "--gold-base tells how --gold numbers words"),
        (["--shift", "auto"], "--reverse"),
        (["--shift", "far"], "--shift far: give a whole number"),
        (["--shift", "11"], "from -10 to 10"),
        (["--level", "pieces", "--format", "json"], "--level pieces goes with --format pharaoh"),
        (["--level", "both"], "--level both goes with --format json or npz"),
        (["--sentences"], "--gold"),
        (["--units", "characters", "--gold", "/dev/null"], "gold links number words"),
    ],
)
def test_what_does_not_go_together_is_refused(
    command_line: Callable[..., Any], tiny_run: Path, given: list[str | Path], arguments: list[str], message: str
) -> None:
    result = command_line("align", tiny_run, *given, *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_a_run_of_the_same_direction_is_refused(
    command_line: Callable[..., Any], tiny_run: Path, given: list[str | Path]
) -> None:
    result = command_line("align", tiny_run, *given, "--reverse", tiny_run)
    assert result.code == 2
    assert "fr → en" in result.err


# -- aer --------------------------------------------------------------------------------------------------------------


def test_gold_that_ends_without_links(command_line: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "hypothesis").write_text("0-0\n1-1\n0-0\n")
    (tmp_path / "gold").write_text("1 1 1 S\n2 2 2 S\n")  # a NAACL file cannot tell of a third sentence
    result = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["sentences"] == 3
    assert json.loads(result.out)["precision"] == pytest.approx(2 / 3)


def test_aer_of_files(command_line: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "hypothesis").write_text("0-0 2-1\n\n1-1\n")
    (tmp_path / "gold").write_text("0-0 1-1 2p1 3-3\n0-0\n1-1\n")
    result = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold", "--json", "--sentences")
    assert result.code == 0, result.err
    scores = json.loads(result.out)
    # A 3, S 5, A∩S 2, A∩P 3.
    assert scores["aer"] == pytest.approx(1 - 5 / 8)
    assert (scores["precision"], scores["recall"]) == pytest.approx((1, 2 / 5))
    assert scores["f1"] == pytest.approx(2 * 0.4 / 1.4)
    assert (scores["sentences"], scores["hypothesis_base"], scores["gold_base"]) == (3, 0, 0)
    assert [row["line"] for row in scores["per_sentence"]] == [1, 2, 3]
    assert [row["aer"] for row in scores["per_sentence"]] == pytest.approx([1 - 3 / 5, 1, 0])
    assert result.err.count("words counted from 0") == 2
    plain = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold").out.split("\n")
    assert plain == ["AER 0.375, precision 1.000, recall 0.400, F1 0.571", "over 3 sentences", ""]
    table = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold", "--sentences").out.split("\n")
    assert table[1].split() == ["1", "0.400", "1.000", "0.333", "0.500"]


def test_aer_of_files_that_count_from_one(command_line: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "hypothesis").write_text("1-1 3-2\n" * 30)
    (tmp_path / "gold").write_text("0-0 2-1\n" * 30)
    for more in ((), ("--hypothesis-base", "1", "--gold-base", "0")):
        result = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold", "--json", *more)
        scores = json.loads(result.out)
        assert (scores["aer"], scores["hypothesis_base"], scores["gold_base"]) == (0, 1, 0)
        assert "hypothesis: Pharaoh, words counted from 1" in result.err
    wrong = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold", "--json", "--hypothesis-base", "0")
    assert json.loads(wrong.out)["aer"] == 1


@pytest.mark.parametrize(
    ("hypothesis", "gold", "message"),
    [
        ("0-0\n", "0-0\n0-0\n", "1 lines of alignments, 2 lines of gold"),
        ("0=0\n", "0-0\n", "hypothesis:1: '0=0' is not a link"),
        ("", "", "no lines"),
    ],
)
def test_aer_refuses(
    command_line: Callable[..., Any], tmp_path: Path, hypothesis: str, gold: str, message: str
) -> None:
    (tmp_path / "hypothesis").write_text(hypothesis)
    (tmp_path / "gold").write_text(gold)
    result = command_line("aer", tmp_path / "hypothesis", tmp_path / "gold")
    assert (result.code, result.out) == (2, "")
    assert message in result.err
