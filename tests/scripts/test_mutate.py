"""The planting of mistakes, on a small made-up package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mutate as script
import pytest

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''"""A docstring with 1 and <."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    MOST = 1

__all__ = ["f"][0:1]
FEW: Literal[3] = 4


def f(x: "Literal[5]", y: int = 6) -> "Literal[7]":
    """Is 8 < 9?"""
    assert x < 10
    print(f"{x:11}", 12)
    if x < y and y is not None:
        raise ValueError("é", 13)
    x += 1
    z = [one for one in (x, y) if one]
    z = sorted(z,
               reverse=True)
    return x
'''
WANTED = {
    ("constant", "FEW: Literal[3] = 4", "FEW: Literal[3] = 5"),
    (
        "constant",
        'def f(x: "Literal[5]", y: int = 6) -> "Literal[7]":',
        'def f(x: "Literal[5]", y: int = 7) -> "Literal[7]":',
    ),
    ("statement", 'print(f"{x:11}", 12)', "pass"),
    ("comparison", "if x < y and y is not None:", "if x <= y and y is not None:"),
    ("comparison", "if x < y and y is not None:", "if x > y and y is not None:"),
    ("comparison", "if x < y and y is not None:", "if x < y and y is None:"),
    ("condition", "if x < y and y is not None:", "if x < y or y is not None:"),
    ("condition", "if x < y and y is not None:", "if (not (x < y and y is not None)):"),
    ("statement", 'raise ValueError("é", 13)', "pass"),
    ("statement", "x += 1", "pass"),
    ("constant", "x += 1", "x += 2"),
    ("condition", "z = [one for one in (x, y) if one]", "z = [one for one in (x, y) if (not (one))]"),
    ("statement", "z = sorted(z, reverse=True)", "pass"),
    ("constant", "reverse=True)", "reverse=False)"),
}

COUNTING = """
MOST = 3


def count_long(lines):
    found = 0
    for line in lines:
        if len(line) > MOST:
            found += 1
    return found


def count_down(number):
    while number:
        number -= 1
    return number


def unreached(number):
    return number + 1
"""
COUNTING_TESTS = """
import pytest

from translate.counting import count_down, count_long


def test_long_lines_are_counted():
    assert count_long(["a", "abcdefg"]) == 1


def test_the_end_is_nothing():
    assert count_down(3) == 0


@pytest.mark.slow
def test_that_is_left_out():
    assert count_long(["abc", "abcd"]) == 1


def test_that_fails_without_a_mistake():
    assert count_long(["abc"]) == 5
"""
EQUIVALENT = """
[[equivalent]]
file = "translate/counting.py"
before = "MOST = 3"
after = "MOST = 4"
reason = "no line is that long"
"""


def test_every_mistake_changes_one_place() -> None:
    source = SOURCE.encode()
    found = script.Planter("room", "room/f.py", source).mutants()
    assert {(one.kind, one.before, one.after) for one in found} == WANTED
    assert len(found) == len(WANTED)
    for one in found:
        changed = source[: one.start] + one.text.encode() + source[one.end :]
        compile(changed, one.file, "exec")
        assert one.lines[0] <= one.line <= one.lines[1]
    (raised,) = (one for one in found if one.before.startswith("raise"))
    assert source[raised.start : raised.end].decode() == 'raise ValueError("é", 13)'
    assert raised.line == 17


def test_a_seed_draws_the_same() -> None:
    found = script.Planter("room", "room/f.py", SOURCE.encode()).mutants()
    drawn = script.draw(found, "room", 1, 8)
    assert drawn == script.draw(found, "room", 1, 8)
    assert drawn[:3] == script.draw(found, "room", 1, 3)
    assert drawn != script.draw(found, "room", 2, 8)
    assert drawn != script.draw(found, "hall", 1, 8)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "translate/__init__.py": "",
        "translate/counting.py": COUNTING,
        "tests/test_counting.py": COUNTING_TESTS,
        "scripts/equivalent_mutants.toml": EQUIVALENT,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow"]\npythonpath = ["."]\n',
    }
    folder = tmp_path / "checkout"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "mutate.py", "--checkout", checkout, "--patience", "1", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8")


def test_the_mistakes_of_a_small_package(checkout: Path) -> None:
    done = run(checkout, "--room", "counting", "--count", "100", "--json")
    assert done.returncode == 0, done.stderr
    assert "test_that_fails_without_a_mistake fails without any mistake" in done.stderr
    about: dict[str, Any] = json.loads(done.stdout)
    fates = {(one["before"], one["after"]): (one["fate"], one["by"]) for one in about["mutants"]}
    longer = "tests/test_counting.py::test_long_lines_are_counted"
    assert fates == {
        ("MOST = 3", "MOST = 4"): ("equivalent", "no line is that long"),
        ("found = 0", "found = 1"): ("caught", longer),
        ("if len(line) > MOST:", "if len(line) >= MOST:"): ("survived", "1 tests reach it"),
        ("if len(line) > MOST:", "if len(line) < MOST:"): ("survived", "1 tests reach it"),
        ("if len(line) > MOST:", "if (not (len(line) > MOST)):"): ("survived", "1 tests reach it"),
        ("found += 1", "pass"): ("caught", longer),
        ("found += 1", "found += 2"): ("caught", longer),
        ("while number:", "while (not (number)):"): ("caught", "tests/test_counting.py::test_the_end_is_nothing"),
        ("number -= 1", "pass"): ("caught", "hangs"),
        ("number -= 1", "number -= 2"): ("caught", "hangs"),
        ("return number + 1", "return number + 2"): ("survived", "no test reaches it"),
    }
    (row,) = about["rooms"]
    assert {**row, "seconds": 0} == {
        "room": "counting",
        "places": 11,
        "planted": 11,
        "caught": 6,
        "survived": 4,
        "equivalent": 1,
        "seconds": 0,
    }
    assert (checkout / "translate" / "counting.py").read_text() == COUNTING, "the checkout itself stays as it is"


def test_a_table_for_people(checkout: Path) -> None:
    done = run(checkout, "--room", "counting", "--count", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:3] == ["counting", "11", "2"]


def test_an_unknown_room_is_refused(checkout: Path) -> None:
    done = run(checkout, "--room", "cellar")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--room cellar:" in done.stderr
