"""Which runs and files `translate compare` takes together, and what it shows; without any training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import TARGET_LINES, write_run

FEW = ("--samples", "20", "--trials", "20")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write_run(tmp_path / "other", seed=2)


def test_runs_of_one_direction_are_compared(answer: Callable[..., str], run: Path, other: Path) -> None:
    found = json.loads(answer("compare", run, other, *FEW, "--json"))
    assert found["sentences"] == 3
    assert [system["name"] for system in found["systems"]] == [str(run), str(other)]
    assert list(found["signatures"]) == ["bleu", "chrf", "chrf++", "ter"]
    one = json.loads(answer("compare", run, other, *FEW, "--metric", "ter", "--metric", "ter", "--json"))
    assert list(one["signatures"]) == ["ter"]
    assert one["systems"][1]["ter"] == found["systems"][1]["ter"]


@pytest.mark.parametrize("turned", [0, 1, 2])
def test_runs_of_opposite_directions_are_refused(
    command_line: Callable[..., Any], tmp_path: Path, run: Path, other: Path, turned: int
) -> None:
    """Whichever of three it is, and however like their test data is."""
    back = write_run(tmp_path / "back", source="fr", target="en")
    for side in ("source", "target"):
        content = (run / "data" / f"test.{side}").read_bytes()
        (back / "data" / f"test.{side}").write_bytes(content)
    systems = [run, other]
    systems.insert(turned, back)
    result = command_line("compare", *systems, *FEW)
    assert (result.code, result.out) == (2, "")
    assert "their translations cannot be compared" in result.err
    first, second = ("fr → en", "en → fr") if turned == 0 else ("en → fr", "fr → en")
    assert f"{systems[0]} translates {first}, " in result.err
    assert second in result.err


@pytest.mark.parametrize("side", ["source", "target"])
def test_runs_of_different_test_data_are_refused(
    command_line: Callable[..., Any], answer: Callable[..., str], run: Path, other: Path, side: str
) -> None:
    path = other / "data" / f"test.{side}"
    path.write_bytes(path.read_bytes().replace(b"e", b"a"))
    result = command_line("compare", run, other, *FEW)
    assert (result.code, result.out) == (2, "")
    assert "different test data" in result.err
    data = ("--source", run / "data" / "test.source", "--reference", run / "data" / "test.target")
    assert json.loads(answer("compare", run, other, *data, *FEW, "--json"))["sentences"] == 3


def test_a_star_says_that_both_tests_agree(answer: Callable[..., str], tmp_path: Path) -> None:
    lines = [f"the {size} {animal} sleeps here" for size in ("small", "large") for animal in ("dog", "cat", "man")] * 3
    files = {
        "reference": lines,
        "good": lines,
        "bad": [line[::-1] for line in lines],
        "same": [line[::-1] for line in lines],
    }
    for name, some in files.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in some))
    arguments = ("--reference", tmp_path / "reference", "--samples", "60", "--trials", "60", "--metric", "chrf")
    text = answer("compare", tmp_path / "bad", tmp_path / "good", tmp_path / "same", *arguments, "--changed", "1")
    rows = [line for line in text.split("\n") if line.startswith(str(tmp_path))]
    assert [row.endswith(" *") for row in rows] == [False, True, False]
    assert rows[0].endswith("baseline")
    assert "[100.00, 100.00]" in rows[1]
    assert text.count("Sentences that changed most") == 1
    assert text.count("\nline ") == 1
    shown = text[text.index("Sentences that") :]
    assert "source" not in shown, "there is none"
    assert shown.count(lines[0]) >= 2


def test_sources_are_shown_where_they_are_known(answer: Callable[..., str], run: Path, other: Path) -> None:
    text = answer("compare", run, other, *FEW, "--metric", "chrf", "--changed", "3")
    shown = [line for line in text.split("\n") if line.startswith("  reference ")]
    assert {line.removeprefix("  reference ").strip() for line in shown} <= set(TARGET_LINES)
    assert text.count("  source ") == len(shown) > 0
