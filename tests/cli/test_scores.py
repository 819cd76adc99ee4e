"""Scores that others can check: sacreBLEU's own command on the kept files, and nothing decoded twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from translate.decoding.translator import Translator

pytestmark = pytest.mark.slow


def sacrebleu_table(*arguments: str | Path, format: str = "text") -> str:
    """What sacreBLEU's own command prints; its JSON of paired tests breaks on numpy's numbers (2.6.0)."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "--format", format, "--width", "4"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def sacrebleu(*arguments: str | Path) -> Any:
    """The same as an object."""
    return json.loads(sacrebleu_table(*arguments, format="json"))


def test_sacrebleus_own_command_says_the_same(answer: Callable[..., str], own_run: Path) -> None:
    ours = json.loads(answer("evaluate", own_run, "--json"))
    kept = (own_run / "data" / "test.target", "-i", own_run / "translations" / "test.txt", "--confidence")
    theirs = dict(zip(("bleu", "chrf", "ter"), sacrebleu(*kept, "-m", "bleu", "chrf", "ter"), strict=True))
    theirs["chrf++"] = sacrebleu(*kept, "-m", "chrf", "--chrf-word-order", "2")
    for name, result in theirs.items():
        assert ours[name]["score"] == pytest.approx(result["score"], abs=1e-4), name
        assert ours[name]["signature"] == result["signature"]
        low, high = (result["confidence_mean"] + sign * result["confidence_var"] for sign in (-1, 1))
        assert (ours[name]["low"], ours[name]["high"]) == pytest.approx((max(0, low), high), abs=1e-3)


def test_nothing_is_decoded_twice(
    answer: Callable[..., str], own_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = own_run / "data" / "test.source"
    first = answer("align", own_run, "--source", source, "--format", "json")
    scores = answer("evaluate", own_run, "--json")
    decoded = []
    translate = Translator.translate

    def counted(self: Translator, lines: Any, *rest: Any, **named: Any) -> Any:
        decoded.append(len(lines))
        return translate(self, lines, *rest, **named)

    monkeypatch.setattr(Translator, "translate", counted)
    # Training has kept the test set's translations with their attention, to the bit.
    assert answer("evaluate", own_run, "--json") == scores
    assert answer("align", own_run, "--source", source, "--format", "json") == first
    assert decoded == []
    # Another search, other sentences, another checkpoint: other translations.
    answer("evaluate", own_run, "--beam", "1")
    assert decoded == [12]
    answer("evaluate", own_run, "--split", "valid")
    assert decoded == [12, 14]
    answer("evaluate", own_run, "--fresh")
    assert decoded == [12, 14, 12]
    (own_run / "best").write_text("step-00000020\n")
    other = answer("align", own_run, "--source", source, "--format", "json")
    assert decoded == [12, 14, 12, 12]
    assert other != first
    # A damaged file is as good as none.
    for count, damage in enumerate((lambda whole: whole[:-40], lambda whole: whole[:90] + b"\xff" * 30 + whole[120:])):
        for path in (own_run / "translations" / "kept").iterdir():
            path.write_bytes(damage(path.read_bytes()))
        assert answer("align", own_run, "--source", source, "--format", "json") == other
        assert len(decoded) == 5 + count


def test_a_run_that_may_only_be_read_is_scored(command_line: Callable[..., Any], own_run: Path) -> None:
    """A file where a folder should be stops even root, as no permission would."""
    kept = own_run / "translations" / "kept"
    for path in kept.iterdir():
        path.unlink()
    kept.rmdir()
    kept.write_text("")
    result = command_line("evaluate", own_run, "--json")
    assert result.code == 0
    assert json.loads(result.out)["sentences"] == 12
    assert "not kept" in result.err


def test_every_way_to_look_at_scores(answer: Callable[..., str], own_run: Path, tmp_path: Path) -> None:
    data = own_run / "data"
    given = ("--source", data / "test.source", "--reference", data / "test.target")
    one = json.loads(answer("evaluate", own_run, *given, "--lowercase", "--json"))
    assert set(one["lowercase"]) == {"bleu", "chrf", "chrf++", "ter"}
    two = json.loads(
        answer("evaluate", own_run, *given, "--reference", own_run / "translations" / "test.txt", "--json")
    )
    assert two["chrf"]["score"] == 100, "the translations are among the references"
    official = (own_run / "translations" / "test.json").read_bytes()
    chars = json.loads(answer("evaluate", own_run, "--tokenize", "char", "--json"))
    assert (own_run / "translations" / "test.json").read_bytes() == official, "the run's own score stays"
    assert "tok:char" in chars["bleu"]["signature"]
    assert chars["bleu"]["score"] > one["bleu"]["score"]
    answer("evaluate", own_run, "--sentences", tmp_path / "scores.tsv")
    rows = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().split("\n")[:-1]]
    assert rows[0] == ["line", "bleu", "chrf", "chrf++", "ter", "translation"]
    assert [row[0] for row in rows[1:]] == [str(number) for number in range(1, 13)]
    assert [row[5] for row in rows[1:]] == (own_run / "translations" / "test.txt").read_text().split("\n")[:-1]
    answer("evaluate", own_run, "--sentences", tmp_path / "long.tsv", "--min-words", "8")
    long = [line.split("\t")[0] for line in (tmp_path / "long.tsv").read_text().split("\n")[1:-1]]
    sources = (data / "test.source").read_text().split("\n")[:-1]
    assert long == [str(number) for number, line in enumerate(sources, start=1) if len(line.split()) >= 8]
    assert 0 < len(long) < 12
    parts = json.loads(answer("evaluate", own_run, "--breakdown", "--json"))["breakdown"]
    assert set(parts) == {"length", "rare", "copied"}
    assert all(sum(part["sentences"] for part in classes) == 12 for classes in parts.values())
    assert (own_run / "translations" / "test.breakdown.png").read_bytes().startswith(b"\x89PNG")
    table = answer("evaluate", own_run, "--breakdown")
    assert "by source length" in table
    assert "found again" in table


def test_unequal_lengths_are_refused(command_line: Callable[..., Any], tiny_run: Path, tmp_path: Path) -> None:
    data = tiny_run / "data"
    (tmp_path / "short").write_text("une\n")
    sides = ("--source", data / "test.source", "--reference")
    for references in ([tmp_path / "short"], [data / "test.target", "--reference", tmp_path / "short"]):
        result = command_line("evaluate", tiny_run, *sides, *references)
        assert (result.code, result.out) == (2, "")
        assert "12 lines" in result.err
    result = command_line("compare", tmp_path / "short", data / "test.target", "--reference", data / "test.target")
    assert (result.code, result.out) == (2, "")
    assert "1 translations, the reference 12 lines" in result.err


# -- compare ----------------------------------------------------------------------------------------------------------


def test_compare_is_sacrebleus_test(answer: Callable[..., str], own_run: Path, tmp_path: Path) -> None:
    reference, mine = own_run / "data" / "test.target", own_run / "translations" / "test.txt"
    lines = reference.read_text().split("\n")[:-1]
    better = tmp_path / "better"
    better.write_text("".join(line + "\n" for line in [*lines[:6], *mine.read_text().split("\n")[6:-1]]))
    arguments = ("compare", mine, better, "--reference", reference, "--samples", "200", "--trials", "300")
    ours = json.loads(answer(*arguments, "--metric", "bleu", "--metric", "chrf", "--json"))
    assert ours["baseline"] == str(mine)
    baseline, system = ours["systems"]
    assert baseline["bleu"]["bootstrap"] is None
    for kind, count, key in (("bs", "200", "bootstrap"), ("ar", "300", "randomisation")):
        table = sacrebleu_table(
            reference, "-i", mine, better, "-m", "bleu", "chrf", f"--paired-{kind}", f"--paired-{kind}-n", count
        )
        chances = [float(chance) for chance in re.findall(r"p = ([0-9.]+)", table)]
        assert [system["bleu"][key], system["chrf"][key]] == pytest.approx(chances, abs=1e-4)
        assert f"{system['chrf']['score']:.4f}" in table
    assert [change["line"] <= 6 for change in ours["changes"][str(better)]] == [True] * 5
    assert all(change["system"] == 100 for change in ours["changes"][str(better)])
    same = tmp_path / "same"
    same.write_bytes(mine.read_bytes())
    equal = json.loads(
        answer("compare", mine, same, "--reference", reference, "--samples", "50", "--trials", "50", "--json")
    )
    assert all(equal["systems"][1][name]["bootstrap"] == 1 for name in ("bleu", "chrf", "ter"))
    assert all(equal["systems"][1][name]["randomisation"] == 1 for name in ("bleu", "chrf", "ter"))
    text = answer(*arguments, "--metric", "chrf", "--changed", "2")
    assert text.count("\nline ") == 2
    first = ours["changes"][str(better)][0]["line"] - 1
    assert text.count(lines[first]) == 2, "as the reference and as what the better one wrote"


def test_compare_runs(answer: Callable[..., str], own_run: Path, tiny_run: Path) -> None:
    (own_run / "best").write_text("step-00000020\n")
    few = ("--samples", "50", "--trials", "50", "--json")
    compared = json.loads(answer("compare", own_run, tiny_run, *few))
    assert compared["sentences"] == 12
    scores = json.loads((tiny_run / "translations" / "test.json").read_text())
    for name in ("bleu", "chrf", "chrf++", "ter"):
        assert compared["systems"][1][name]["score"] == pytest.approx(scores[name]["score"], abs=1e-4)
    mixed = json.loads(answer("compare", own_run, tiny_run / "translations" / "test.txt", *few))
    assert {**mixed["systems"][1], "name": ""} == {**compared["systems"][1], "name": ""}


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        (["run"], [], "nothing to compare"),
        (["run", "run"], [], "named twice"),
        (["file", "file2"], [], "--reference"),
        (["run", "file"], ["--reference", "file"], "--source"),
        (["run", "file"], ["--source", "file"], "--reference"),
        (["run", "absent"], [], "no such file"),
        (["run", "file"], ["--metric", "rouge"], "--metric rouge: choose from bleu"),
    ],
)
def test_compare_refuses(
    command_line: Callable[..., Any],
    tiny_run: Path,
    tmp_path: Path,
    systems: list[str],
    options: list[str],
    message: str,
) -> None:
    target = tiny_run / "data" / "test.target"
    (tmp_path / "file2").write_bytes(target.read_bytes())
    paths = {"run": tiny_run, "file": target, "file2": tmp_path / "file2", "absent": tmp_path / "absent"}
    result = command_line("compare", *(paths.get(part, part) for part in [*systems, *options]))
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_runs_of_different_test_sets_are_refused(
    command_line: Callable[..., Any], own_run: Path, tiny_run: Path
) -> None:
    path = own_run / "data" / "test.target"
    path.write_bytes(path.read_bytes().replace(b"e", b"a"))
    result = command_line("compare", tiny_run, own_run)
    assert result.code == 2
    assert "different test data" in result.err
    config = (own_run / "config.toml").read_text()
    config = config.replace('source_lang = "en"', 'source_lang = "fr"').replace(
        'target_lang = "fr"', 'target_lang = "en"'
    )
    (own_run / "config.toml").write_text(config)
    result = command_line("compare", tiny_run, own_run)
    assert result.code == 2
    assert "their translations cannot be compared" in result.err
    given = ("--source", path, "--reference", path)
    assert command_line("evaluate", tiny_run, *given, "--split", "valid").code == 2


def test_learning_curves_of_runs(answer: Callable[..., str], command_line: Any, tiny_run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "both.png"
    labels = ("--label", "one", "--label", "other")
    assert answer("curves", tiny_run, tiny_run, *labels, "--output", picture) == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    for wrong, named in ((labels[:2], "--label is given 1 times"), ((), "Two runs are called")):
        result = command_line("curves", tiny_run, tiny_run, *wrong, "--output", picture)
        assert (result.code, result.out) == (2, "")
        assert named in result.err
