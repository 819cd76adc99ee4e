"""A cleaned copy: pairs stay pairs, every rule is counted, and the input is never touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import DataError
from translate.text.clean import FAULTS, REPAIRED, Norms, faults_of
from translate.text.cleaning import clean
from translate.text.corpus import Pair, open_file, parallel_files

RULES = list(FAULTS)


def written(folder: Path, pairs: list[Pair]) -> tuple[Path, Path]:
    for side, ending in enumerate(("en", "fr")):
        (folder / f"mine.{ending}").write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())
    return folder / "mine.en", folder / "mine.fr"


def read(files: tuple[Path, Path]) -> list[Pair]:
    sides = [path.read_bytes().decode().split("\n")[:-1] for path in files]
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def made(folder: Path) -> tuple[Path, Path]:
    return folder / "out" / "mine.en", folder / "out" / "mine.fr"


LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.tuples(LINE, LINE), max_size=12))
def test_pairs_stay_pairs_and_counts_add_up(
    tmp_path_factory: pytest.TempPathFactory, sides: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("clean")
    # Each side carries its number, so that a shift would show.
    pairs = [Pair(f"{number} {a}", f"{number} {b}") for number, (a, b) in enumerate(sides)]
    files = written(folder, pairs)
    before = [path.read_bytes() for path in files]
    report = clean(parallel_files(*files), made(folder), RULES, Norms())
    after = read(made(folder))
    assert [path.read_bytes() for path in files] == before
    assert [pair.source.split(" ")[0] for pair in after] == [pair.target.split(" ")[0] for pair in after]
    assert report.read == len(pairs) == report.written + sum(report.left_out.values())
    assert len(after) == report.written
    for pair in after:
        assert not set(faults_of(pair, Norms(max_ratio=0))) & {"empty side", "mojibake", "control characters"}


def test_each_rule_is_counted_once_and_repairs_keep_the_pair(tmp_path: Path) -> None:
    pairs = [
        Pair("one good pair", "une bonne paire"),
        Pair("", "vide"),
        Pair("", "vide"),  # a duplicate too, but the first rule that holds counts
        Pair("one good pair", "une bonne  paire"),
        Pair("a tab\tinside", "une tabulation\u2028dedans"),
        Pair("the same text", "the same text"),
    ]
    files = written(tmp_path, pairs)
    report = clean(parallel_files(*files), made(tmp_path), RULES, Norms())
    assert {rule: count for rule, count in report.left_out.items() if count} == {
        "empty side": 2,
        "identical sides": 1,
        "duplicate": 1,
    }
    assert report.repaired == {"control characters": 1}
    assert read(made(tmp_path)) == [pairs[0], Pair("a tab inside", "une tabulation dedans")]
    assert set(report.left_out) == set(FAULTS) - set(REPAIRED)


def test_no_rule_copies_every_pair(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"en": "two\nlines", "fr": "x\ty"}, {"en": "", "fr": None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = clean(open_file(path, "en", "fr"), made(tmp_path), [], Norms())
    assert read(made(tmp_path)) == [Pair("two lines", "x\ty"), Pair("", "")]
    assert (report.read, report.written) == (2, 2)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    files = written(tmp_path, [Pair("one", "un")])
    (tmp_path / "out").mkdir()
    made(tmp_path)[1].write_text("mine\n")
    for target in (made(tmp_path), files):
        with pytest.raises(DataError, match="already exists; nothing was written"):
            clean(parallel_files(*files), target, RULES, Norms())
    assert made(tmp_path)[1].read_text() == "mine\n"
    assert read(files) == [Pair("one", "un")]
    assert not made(tmp_path)[0].exists()


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = written(tmp_path, [Pair("one", "un")])
    files[1].write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="not valid UTF-8"):
        clean(parallel_files(*files), made(tmp_path), RULES, Norms())
    assert not (tmp_path / "out").exists()
