"""The comparison of alignments: what is measured of two runs, what is kept, and what the page shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from translate.alignment.aer import Aer
from translate.config import load_config
from translate.errors import UserError

ROOT = Path(__file__).resolve().parents[2]

import compare_alignment as script  # noqa: E402
import comparing  # noqa: E402


def score_of(first: float, rest: float, overall: float = 0.25) -> script.Score:
    return script.Score(*(Aer(aer, 0.8, 0.7, 0.75, 10) for aer in (overall, first, rest)))


def row_of(name: str) -> script.Row:
    kinds = (*script.SINGLE, *script.METHODS)
    scores = {kind: score_of(0.5 - place / 100, 0.3 + place / 100) for place, kind in enumerate(kinds)}
    return script.Row(
        script.settings_of(name, "train.minutes=0.5"), 1, scores, 1.25, "abc1234", "a machine", "2026-01-02"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus in the shape that the script reads, of the demo's lines."""
    place = tmp_path / "corpus"
    place.mkdir()
    for stem, name, count in (("train", "train", 40), ("valid", "dev", 8), ("test", "gold", 12)):
        for ending in ("en", "fr", "align"):
            lines = (ROOT / "data" / "demo" / f"{stem}.{ending}").read_text().split("\n")[:count]
            (place / f"{name}.{ending}").write_text("".join(line + "\n" for line in lines))
    return place


def test_the_corpus_is_found_by_its_gold(folder: Path) -> None:
    corpus = script.Corpus.find(folder, None)
    assert (corpus.source, corpus.target, len(corpus.gold)) == ("en", "fr", 12)
    (folder / "dev.fr").unlink()
    with pytest.raises(UserError, match=r"lacks dev\.fr"):
        script.Corpus.find(folder, None)
    with pytest.raises(UserError, match=r"lacks train\.de"):
        script.Corpus.find(folder, ["de", "fr"])


@pytest.mark.parametrize("name", script.MEMBERS)
def test_every_member_has_a_sound_configuration(folder: Path, tmp_path: Path, name: str) -> None:
    path = script.Corpus.find(folder, None).write_project(tmp_path / "work", 30)
    config = load_config(path, script.settings_of(name, "train.minutes=0.5"))
    assert f"{config.model.decoder.kind}-{config.model.attention.score}" == name
    assert (config.train.minutes, config.train.steps, config.train.threads) == (0.5, None, 1)
    assert len((tmp_path / "work" / "data" / "train.fr").read_text().split("\n")) == 31


def test_what_is_chosen_is_chosen_on_the_first_sentences() -> None:
    scores = {"a": score_of(0.4, 0.1), "b": score_of(0.2, 0.3), "c": score_of(0.3, 0.2)}
    assert script.chosen(scores) == "b"
    assert "AER 30.0%" in script.told(scores)
    assert [script.cut_of([object()] * count) for count in (508, 12)] == [100, 6]  # type: ignore[list-item]


def test_a_row_is_reused_only_if_its_settings_agree(tmp_path: Path) -> None:
    row, path = row_of("luong-additive"), tmp_path / "luong-additive.json"
    path.write_text(json.dumps(asdict(row)))
    assert script.read_row(path, script.settings_of("luong-additive", "train.minutes=0.5")) == row
    assert script.read_row(path, script.settings_of("luong-additive", "train.steps=9")) is None
    path.write_text("{")
    assert script.read_row(path, row.settings) is None


def test_a_second_call_trains_what_is_missing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def make(self: script.Comparison, name: str, config: Path, commands: comparing.Commands) -> script.Row:
        made.append(name)
        if name == "luong-additive" and made.count(name) == 1:
            raise comparing.MemberFailed("no | room")
        (self.work / f"{name}.json").write_text(json.dumps(asdict(row_of(name))))
        return row_of(name)

    monkeypatch.setattr(script.Comparison, "_make_row", make)
    out = tmp_path / "page.md"
    arguments = [
        str(folder),
        str(out),
        "--pairs",
        "20",
        "--minutes",
        "0.5",
        "--jobs",
        "1",
        "--work",
        str(tmp_path / "w"),
    ]
    assert script.main([*arguments, "--only", "luong-additive", "luong-general"]) == 1
    page = out.read_text()
    assert "| luong-additive | failed: no \\| room |" in page
    assert "Not measured yet: bahdanau-additive" in page
    assert script.main([*arguments, "--only", "luong-additive", "luong-general"]) == 0
    assert made == ["luong-additive", "luong-general", "luong-additive"]
    rows = [line for line in out.read_text().split("\n") if line.startswith("| luong")]
    assert len(rows) == 2
    # The last kind is the best on the first sentences, and 0.37 is its rate on the others.
    assert rows[0].endswith("| grow-diag-final-and | 37.0 | 1.2 |")
    assert {line.count("|") for line in out.read_text().split("\n") if line.startswith("|")} == {14}
    arguments[3] = "21"
    assert script.main([*arguments, "--only", "luong-additive"]) == 2
    assert "was made with 20 pairs, not 21" in capsys.readouterr().err


@pytest.mark.slow
def test_finished_runs_are_measured_with_their_heads(
    folder: Path,
    tmp_path: Path,
    tiny_run: Path,
    back_run: Path,
    answer: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command is a real one, called inside this process."""
    runs = tmp_path / "there", tmp_path / "back"
    for run, copied in zip((tiny_run, back_run), runs, strict=True):
        shutil.copytree(run, copied)
    answer("head", runs[0], "--reverse", runs[1], "--steps", "1", "--width", "5")
    monkeypatch.setattr(script.Commands, "run", lambda self, log, *arguments: answer(*arguments))
    out = tmp_path / "page.md"
    places = [str(folder), str(out), "--work", str(tmp_path / "w")]
    assert script.main([*places, "--only", "--full", *map(str, runs)]) == 0
    page = out.read_text()
    assert [line for line in page.split("\n") if line.startswith("## ")] == [
        "## Full runs",
        "## Full runs, with the head",
    ]
    found = script.read_full(tmp_path / "w" / "full.json")
    shift, scores = found["full runs"]
    assert set(scores) == {*script.SINGLE, *script.METHODS}
    gold = ("--source", folder / "gold.en", "--target", folder / "gold.fr", "--gold", folder / "gold.align", "--json")

    def said(*arguments: str | Path) -> float:
        return float(json.loads(answer("align", *arguments))["aer"])

    assert scores["there"].all.aer == pytest.approx(said(runs[0], *gold))
    both = (runs[0], "--reverse", runs[1], *gold, "--symmetrize", "union")
    assert scores["union"].all.aer == pytest.approx(said(*both, "--shift", str(shift)))
    headed = found["full runs, with the head"][1]
    assert set(headed) == {"there", "back", *script.METHODS}
    assert headed["union"].all.aer == pytest.approx(said(*both, "--head"))
    assert headed["union"].rest.aer == pytest.approx(said(*both, "--head", "--lines", "7-12"))


def test_a_folder_without_gold_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(folder.parent / "none"), "out.md"]) == 2
    assert "gold.L1, gold.L2 and gold.align are needed" in capsys.readouterr().err
