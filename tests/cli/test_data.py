"""`translate data check` and `translate data clean` as commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CommandLine = Callable[..., Any]


@pytest.fixture
def mine(tmp_path: Path) -> tuple[Path, Path]:
    pairs = [("the dog sleeps", "le chien dort"), ("a cat", "un chat"), ("", "vide"), ("a cat", "un chat")]
    for side, ending in enumerate(("en", "fr")):
        (tmp_path / f"mine.{ending}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return tmp_path / "mine.en", tmp_path / "mine.fr"


def test_check_in_three_forms(command_line: CommandLine, mine: tuple[Path, Path], tmp_path: Path) -> None:
    text = command_line("data", "check", *mine)
    assert text.code == 0, text.err
    assert "4 pairs" in text.out
    tree = json.loads(command_line("data", "check", *mine, "--held-out", mine[0], "--json").out)
    assert tree["findings"]["empty_side"] == {"count": 1, "lines": [3]}
    assert tree["findings"]["duplicate"] == {"count": 1, "lines": [4]}
    assert tree["overlap"][0]["in_training"] == 4
    page = command_line("data", "check", *mine, "--html", tmp_path / "report.html")
    assert page.code == 0, page.err
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_check_of_a_configuration_looks_for_its_test_set(command_line: CommandLine, project: Path) -> None:
    data = project.parent / "data"
    first = (data / "train.en").read_text().split("\n")[0]
    (data / "test.en").write_text((data / "test.en").read_text().replace("\n", f"\n{first}\n", 1))
    (data / "test.fr").write_text((data / "test.fr").read_text().replace("\n", "\nx\n", 1))
    tree = json.loads(command_line("data", "check", project, "--json").out)
    assert [(part["name"], part["in_training"]) for part in tree["overlap"]] == [("data.valid", 0), ("data.test", 1)]
    assert tree["findings"]["held_out"]["lines"] == [1]


def test_clean_writes_a_folder_that_a_configuration_can_use(
    command_line: CommandLine, project: Path, tmp_path: Path
) -> None:
    data = project.parent / "data"
    (data / "train.en").write_text((data / "train.en").read_text() + "\n")
    (data / "train.fr").write_text((data / "train.fr").read_text() + "vide\n")
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    done = command_line("data", "clean", project, "--output", tmp_path / "clean")
    assert done.code == 0, done.err
    assert "201 pairs read, 200 written" in done.out
    assert "left out          1  empty side" in done.out
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before
    assert (tmp_path / "clean" / "valid.fr").read_bytes() == before["valid.fr"]
    again = command_line("data", "clean", project, "--output", tmp_path / "clean")
    assert again.code == 2
    assert "already exists; nothing was written" in again.err


def test_clean_by_chosen_rules(command_line: CommandLine, mine: tuple[Path, Path], tmp_path: Path) -> None:
    words = ("data", "clean", *mine, "--output", tmp_path / "out", "--json")
    tree = json.loads(command_line(*words, "--only", "duplicate,empty-side", "--without", "empty-side").out)
    assert tree == {"read": 4, "written": 3, "left_out": {"duplicate": 1}, "repaired": {}}
    assert (tmp_path / "out" / "mine.en").read_text() == "the dog sleeps\na cat\n\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "no.en", "no.fr"), "no.en: no such file"),
        (("check", "no.tsv"), "no.tsv: no such file"),
        (("check", "no.txt"), "one file must be .tsv, .jsonl or .parquet"),
        (("check", "a", "b", "c"), "Give two text files"),
        (("clean", "no.tsv", "--output", "x", "--only", "dupes"), "'dupes' is not a rule. Choose from: empty-side,"),
        (("check", "no.en", "no.fr", "--held-out", "gone"), "--held-out gone: no such file"),
    ],
)
def test_mistakes(command_line: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    answer = command_line("data", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
