"""Alignment heads from the command line: trained by two runs, kept in them, read by `align --head`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from translate.alignment.formats import read_alignments
from translate.run.directory import Run
from translate.run.heads import HEAD, HEAD_NOTE, head_path, load_head
from translate.run.sealed_files import MANIFEST

pytestmark = pytest.mark.slow

SMALL = ("--steps", "3", "--width", "7", "--batch-tokens", "900")


@pytest.fixture(scope="module")
def headed(
    tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, back_run: Path, translate: Any
) -> tuple[Path, Path]:
    """Copies of two runs that have heads; tests must not change them."""
    folder = tmp_path_factory.mktemp("headed")
    runs = folder / "there", folder / "back"
    for run, copied in zip((tiny_run, back_run), runs, strict=True):
        shutil.copytree(run, copied)
    done = translate("head", runs[0], "--reverse", runs[1], *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "180 pairs to learn from, 20 held out" in done.stderr
    assert "A lexicon of " in done.stderr
    assert "update 3: held-out loss" in done.stderr
    return runs


@pytest.fixture
def given(tiny_run: Path) -> list[str | Path]:
    files = tiny_run.parent / "data"
    return ["--source", files / "test.en", "--target", files / "test.fr"]


def test_a_head_says_how_it_was_trained(headed: tuple[Path, Path]) -> None:
    for path in headed:
        run = Run.open(path)
        assert {file.name for file in head_path(run).iterdir()} == {HEAD, HEAD_NOTE, MANIFEST}
        note = json.loads((head_path(run) / HEAD_NOTE).read_text())
        assert (note["updates"], note["width"], note["checkpoint"]) == (6, 7, run.best().name)  # two rounds of three
        assert note["settings"]["align"]["extraction"]["shift"] in (-1, 0, 1, 2)
        assert note["settings"]["lexicon"] is True
        assert load_head(run, run.load_model()).width == 7
        assert not list(path.glob(".tmp-*"))


def test_every_format_reads_the_head(
    answer: Callable[..., str], headed: tuple[Path, Path], given: list[str | Path], tmp_path: Path
) -> None:
    there, back = headed
    plain, by_head = (
        [json.loads(line) for line in answer("align", there, *given, "--format", "json", *more).split("\n")[:-1]]
        for more in ((), ("--head",))
    )
    for one, other in zip(plain, by_head, strict=True):
        assert one["source_pieces"] == other["source_pieces"]
        assert one["weights"] != other["weights"]
        np.testing.assert_allclose(np.sum(other["weights"], axis=1), 1.0, atol=2e-3)
    both = ("align", there, *given, "--head", "--reverse", back)
    found = {}
    for kind in ("pharaoh", "probabilities", "naacl", "npz"):
        answer(*both, "--format", kind, "--output", tmp_path / kind)
        sentences = read_alignments(tmp_path / kind, "auto", sentences=12).sentences
        found[kind] = [set(sentence.possible) for sentence in sentences]
    assert all(links == found["pharaoh"] for links in found.values())
    answer("align", there, *given, "--head", "--format", "png", "--lines", "2", "--output", tmp_path / "pictures")
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["2.png"]
    for more, label in (((), "attention weight"), (("--head",), "alignment head's probability")):
        answer("align", there, *given, *more, "--format", "svg", "--lines", "2", "--output", tmp_path / label)
        assert label in (tmp_path / label / "2.svg").read_text()
    gold = tmp_path / "pharaoh"
    scores = json.loads(answer(*both, "--gold", gold, "--json"))
    assert scores["aer"] == 0


def test_own_translations_are_aligned_by_the_head(
    answer: Callable[..., str], headed: tuple[Path, Path], given: list[str | Path], tmp_path: Path
) -> None:
    own = [
        json.loads(line)
        for line in answer("align", headed[0], *given[:2], "--head", "--format", "json").split("\n")[:-1]
    ]
    (tmp_path / "own").write_text("".join(record["target"] + "\n" for record in own))
    sides = (*given[:2], "--target", tmp_path / "own")
    forced = [
        json.loads(line) for line in answer("align", headed[0], *sides, "--head", "--format", "json").split("\n")[:-1]
    ]
    compared = 0
    for one, other in zip(own, forced, strict=True):
        if one["target_pieces"] == other["target_pieces"]:  # else the search spelt a word in another way
            np.testing.assert_allclose(one["weights"], other["weights"], atol=2e-4)
            compared += 1
    assert compared


def test_the_same_command_gives_the_same_heads(
    headed: tuple[Path, Path], tmp_path: Path, answer: Callable[..., str]
) -> None:
    copies = tmp_path / "there", tmp_path / "back"
    for run, copied in zip(headed, copies, strict=True):
        shutil.copytree(run, copied)
    answer("head", copies[0], "--reverse", copies[1], *SMALL, "--seed", "2")
    changed = [(copied / "head" / HEAD).read_bytes() for copied in copies]
    answer("head", copies[0], "--reverse", copies[1], *SMALL)
    for run, copied, other in zip(headed, copies, changed, strict=True):
        content = (copied / "head" / HEAD).read_bytes()
        assert content == (run / "head" / HEAD).read_bytes() != other


def test_given_links_and_given_text(
    command_line: Callable[..., Any], headed: tuple[Path, Path], tiny_run: Path, tmp_path: Path
) -> None:
    copies = tmp_path / "there", tmp_path / "back"
    for run, copied in zip(headed, copies, strict=True):
        shutil.copytree(run, copied)
    data = tiny_run.parent / "data"
    arguments = ("head", copies[0], "--reverse", copies[1], *SMALL)
    result = command_line(*arguments, "--links", data / "train.align")
    assert result.code == 0, result.err
    assert "shift" not in result.err, "there is no attention to be shifted"
    assert "lexicon" not in result.err, "nor to be weighed"
    text = ("--source", data / "valid.en", "--target", data / "valid.fr")
    assert command_line(*arguments, *text, "--links", data / "valid.align", "--rounds", "2").code == 0
    assert json.loads((copies[1] / "head" / HEAD_NOTE).read_text())["links"] == "valid.align"
    assert "lexicon" not in command_line(*arguments, "--no-lexicon").err
    assert json.loads((copies[1] / "head" / HEAD_NOTE).read_text())["settings"]["lexicon"] is False
    short = tmp_path / "short"
    short.write_text("0-0\n")
    result = command_line(*arguments, "--links", short)
    assert result.code == 2
    assert "short has 1 lines, but the text has a pair at line 200" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "a.en"], "--source and --target go together"),
        (["--lexicon", "--links", "a.align"], "--lexicon improves the links of both runs"),
        (["--shift", "far"], "--shift far: give a whole number"),
        (["--source", "/dev/null", "--target", "/dev/null"], "0 pairs to learn from"),
        (["--source", "none.en", "--target", "none.fr"], "none.en: no such file"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(
    command_line: Callable[..., Any], headed: tuple[Path, Path], arguments: list[str], message: str
) -> None:
    result = command_line("head", headed[0], "--reverse", headed[1], *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_a_run_of_the_same_direction_is_refused(command_line: Callable[..., Any], headed: tuple[Path, Path]) -> None:
    result = command_line("head", headed[0], "--reverse", headed[0])
    assert result.code == 2
    assert "fr → en" in result.err


def test_no_head_damaged_heads_and_those_of_other_weights_are_refused(
    command_line: Callable[..., Any],
    tiny_run: Path,
    back_run: Path,
    headed: tuple[Path, Path],
    given: list[str | Path],
    tmp_path: Path,
) -> None:
    result = command_line("align", tiny_run, *given, "--head")
    assert result.code == 2
    assert f"{tiny_run} has no alignment head. `translate head {tiny_run} --reverse RUN2` trains one." in result.err
    result = command_line("align", headed[0], *given, "--head", "--reverse", back_run)
    assert result.code == 2
    assert f"{back_run} has no alignment head" in result.err
    own = tmp_path / "own"
    shutil.copytree(headed[0], own)
    note = own / "head" / HEAD_NOTE
    note.write_text(note.read_text().replace('"width": 7', '"width": 8'))
    result = command_line("align", own, *given, "--head")
    assert result.code == 2
    assert f"{HEAD_NOTE} does not match its SHA-256" in result.err
    shutil.rmtree(own / "head")
    shutil.copytree(headed[1] / "head", own / "head")
    result = command_line("align", own, *given, "--head")
    assert result.code == 2
    assert "belongs to other weights" in result.err


def test_a_stop_saves_the_heads(headed: tuple[Path, Path], tmp_path: Path, environment: dict[str, str]) -> None:
    copies = tmp_path / "there", tmp_path / "back"
    for run, copied in zip(headed, copies, strict=True):
        shutil.copytree(run, copied, ignore=shutil.ignore_patterns("head"))
    command = [sys.executable, "-m", "translate", "head", copies[0], "--reverse", copies[1], "--steps", "100000"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round 1, update 0:"):
                break
        os.kill(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(timeout=120) == 130
    assert "are saved in" in said
    for path in copies:
        run = Run.open(path)
        load_head(run, run.load_model())
