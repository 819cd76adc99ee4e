"""Alignments are read as they were written, and a bad file is named with its line."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.alignment.formats import (
    Gold,
    Link,
    alignment_record,
    format_pharaoh,
    parse_gold,
    parse_pharaoh,
    read_gold,
    read_pharaoh,
)
from translate.errors import DataError

links = st.builds(Link, st.integers(0, 999), st.integers(0, 999))


@given(st.sets(links))
def test_what_is_written_is_read_again(given_links: set[Link]) -> None:
    line = format_pharaoh(given_links)
    assert parse_pharaoh(line, "here:1") == sorted(given_links)
    assert parse_gold(line, "here:1") == Gold(frozenset(given_links), frozenset(given_links))


def test_links_are_written_once_by_source_then_target() -> None:
    assert format_pharaoh([Link(10, 0), Link(2, 3), Link(2, 1), Link(2, 3)]) == "2-1 2-3 10-0"
    assert format_pharaoh([]) == ""


def test_possible_links_include_the_sure_ones() -> None:
    gold = parse_gold("0-0 1p2 3-4\t1-1", "here:1")
    assert gold.sure == {Link(0, 0), Link(3, 4), Link(1, 1)}
    assert gold.possible == gold.sure | {Link(1, 2)}
    with pytest.raises(AssertionError):
        Gold(sure=frozenset({Link(0, 0)}), possible=frozenset())


@pytest.mark.parametrize("token", ["1", "1-", "-1-2", "a-1", "1p2", "1-2-3", "1:2", "١-٢", "1-2\u20283-4", "9" * 5000])
def test_a_bad_link_is_named_with_its_place(token: str) -> None:
    with pytest.raises(DataError, match=r"^mine\.align:7: .* is not a link\. A link is i-j") as caught:
        parse_pharaoh(f"0-0 {token}", "mine.align:7")
    assert repr(token[:40]) in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_error_carries_no_escape_sequences() -> None:
    with pytest.raises(DataError) as caught:
        parse_gold("\x1b[31m", "gold:1")
    assert "\x1b" not in str(caught.value)
    assert "ipj (possible)" in str(caught.value)


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_bytes(b"\xef\xbb\xbf0-0 1p1\r\n\r\n\n2-2")
    gold = read_gold(path)
    assert [len(sentence.possible) for sentence in gold] == [2, 0, 0, 1]
    path.write_bytes(b"\n0-0\n\n")
    assert read_pharaoh(path) == [[], [Link(0, 0)], []]
    path.write_bytes(b"")
    assert read_pharaoh(path) == []


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"1-1\x0c2-2", "1-1\u20282-2".encode(), b"1-1\x85", b"1-1\x00"])
def test_a_bad_byte_is_named_with_its_line(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "hypothesis"
    path.write_bytes(b"0-0\n\n" + bad + b"\n")
    with pytest.raises(DataError, match="hypothesis:3: "):
        read_pharaoh(path)


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent", "no such file"), (tmp_path, "cannot be read: Is a directory")):
        with pytest.raises(DataError, match=f"{path}: {reason}"):
            read_gold(path)


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "links").write_bytes(b"0-1\n")
    with (tmp_path / "links").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert read_pharaoh(Path("-")) == [[Link(0, 1)]]


def test_a_record_is_json_and_complete() -> None:
    record = alignment_record(
        line=3,
        source="ein Haus",
        target="house",
        source_words=["ein", "Haus"],
        target_words=["house"],
        source_pieces=["▁ein", "▁Haus", "</s>"],
        target_pieces=["▁house", "</s>"],
        weights=np.array([[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]], dtype=np.float32),
        word_weights=np.array([[0.1, 0.7, 0.2]]),
        links=[Link(1, 0)],
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        "line": 3,
        "source": "ein Haus",
        "target": "house",
        "source_words": ["ein", "Haus"],
        "target_words": ["house"],
        "source_pieces": ["▁ein", "▁Haus", "</s>"],
        "target_pieces": ["▁house", "</s>"],
        "weights": [[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]],
        "word_weights": [[0.1, 0.7, 0.2]],
        "links": [[1, 0]],
    }


def test_a_record_of_an_empty_sentence() -> None:
    one = np.ones((1, 1))
    record = alignment_record(
        line=1,
        source="",
        target="",
        source_words=[],
        target_words=[],
        source_pieces=["</s>"],
        target_pieces=["</s>"],
        weights=one,
        word_weights=np.zeros((0, 1)),
        links=[],
    )
    assert (record["weights"], record["word_weights"], record["links"]) == ([[1.0]], [], [])
