"""A new corpus folder: no pair twice, whole sentences held out, as many as were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from translate.errors import DataError
from translate.text.corpus import Pair
from translate.text.split import split_corpus


def write(folder: Path, pairs: list[Pair]) -> tuple[Path, Path]:
    for side, ending in enumerate(("en", "fr")):
        (folder / f"mine.{ending}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return folder / "mine.en", folder / "mine.fr"


def numbered(count: int) -> list[Pair]:
    return [Pair(f"sentence {number}", f"phrase {number}") for number in range(count)]


def test_every_pair_goes_to_one_part(tmp_path: Path) -> None:
    pairs = numbered(110)
    files = write(tmp_path, [*pairs, pairs[3], pairs[7]])
    split = split_corpus(*files, num_valid=9, num_test=13)
    assert (len(split.train), len(split.valid), len(split.test), split.num_duplicates) == (88, 9, 13, 2)
    assert sorted([*split.train, *split.valid, *split.test]) == sorted(pairs)
    assert split.train == [pair for pair in pairs if pair in set(split.train)], "training keeps the order"
    again, other = split_corpus(*files, 9, 13), split_corpus(*files, 9, 13, seed=2)
    assert (again.valid, again.test) == (split.valid, split.test)
    assert (other.valid, other.test) != (split.valid, split.test)
    assert split_corpus(*files, 0, 0).train == pairs


@pytest.mark.parametrize(("count", "held_out"), [(100, 20), (1500, 30), (60_000, 1000)])
def test_a_fiftieth_is_held_out_within_bounds(tmp_path: Path, count: int, held_out: int) -> None:
    split = split_corpus(*write(tmp_path, numbered(count)), None, None)
    assert (len(split.valid), len(split.test)) == (held_out, held_out)
    assert len(split.train) == count - 2 * held_out


def test_training_sees_no_sentence_that_is_held_out(tmp_path: Path) -> None:
    """A sentence with several translations is held out with all of them, though no more count than are wanted."""
    pairs = [Pair(pair.source, f"{pair.target} {way}") for pair in numbered(60) for way in range(3)]
    split = split_corpus(*write(tmp_path, pairs), num_valid=10, num_test=11)
    assert (len(split.valid), len(split.test)) == (10, 11)
    held_out = {pair.source for pair in (*split.valid, *split.test)}
    assert held_out.isdisjoint(pair.source for pair in split.train)
    assert len(split.train) == 180 - 3 * (4 + 4)


def test_what_has_an_empty_side_is_not_held_out(tmp_path: Path) -> None:
    pairs = [*numbered(60), *(Pair(f"alone {number}", "\t") for number in range(60))]
    split = split_corpus(*write(tmp_path, pairs), 15, 15)
    assert all(pair.target.startswith("phrase") for pair in (*split.valid, *split.test))


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"have 99 lines: at least 100 pairs"):
        split_corpus(*write(tmp_path, numbered(99)), None, None)
    files = write(tmp_path, numbered(101))
    with pytest.raises(DataError, match=r"101 different sentences; 51 of them .* would leave too few"):
        split_corpus(*files, 26, 25)
    assert len(split_corpus(*files, 25, 25).train) == 51
