"""Alignments are read as they were written, and a bad file is named with its line."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from translate.alignment.formats import (
    FEWEST_TO_DETECT,
    Gold,
    Link,
    alignment_record,
    format_gold,
    format_naacl,
    format_pharaoh,
    format_probabilities,
    parse_gold,
    parse_pharaoh,
    read_alignments,
    read_gold,
    read_pharaoh,
    read_records,
    write_npz,
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
        source_spans=[(0, 3), (4, 8)],
        target_spans=[(0, 5)],
        source_pieces=["▁ein", "▁Haus", "</s>"],
        target_pieces=["▁house", "</s>"],
        weights=np.array([[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]], dtype=np.float32),
        word_weights=np.array([[0.1, 0.7, 0.2]]),
        links=[Link(1, 0)],
        probabilities={Link(1, 0): np.float32(0.7)},
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        "line": 3,
        "source": "ein Haus",
        "target": "house",
        "source_words": ["ein", "Haus"],
        "target_words": ["house"],
        "source_spans": [[0, 3], [4, 8]],
        "target_spans": [[0, 5]],
        "source_pieces": ["▁ein", "▁Haus", "</s>"],
        "target_pieces": ["▁house", "</s>"],
        "weights": [[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]],
        "word_weights": [[0.1, 0.7, 0.2]],
        "links": [[1, 0]],
        "probabilities": [0.7],
    }


def test_numbers_have_six_decimals() -> None:
    third = np.full((1, 1), 1 / 3)
    record = alignment_record(
        line=1,
        source="a",
        target="",
        source_words=["a"],
        target_words=[],
        source_spans=[(0, 1)],
        target_spans=[],
        source_pieces=["</s>"],
        target_pieces=["</s>"],
        weights=third,
        word_weights=np.zeros((0, 2)),
        links=[Link(0, 0)],
        probabilities={Link(0, 0): 1 / 3},
        score=-2 / 3,
    )
    assert (record["weights"], record["probabilities"], record["score"]) == ([[0.333333]], [0.333333], -0.666667)
    assert format_probabilities([Link(0, 0)], {Link(0, 0): 2 / 3}) == "0-0:0.666667"


def test_a_record_of_an_empty_sentence() -> None:
    one = np.ones((1, 1))
    record = alignment_record(
        line=1,
        source="",
        target="",
        source_words=[],
        target_words=[],
        source_spans=[],
        target_spans=[],
        source_pieces=["</s>"],
        target_pieces=["</s>"],
        weights=one,
        word_weights=np.zeros((0, 1)),
        links=[],
        probabilities={},
    )
    assert (record["weights"], record["word_weights"], record["links"]) == ([[1.0]], [], [])


# -- whole files: what is written in a format is read again ------------------------------------------------------------

ROUND_TRIP = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
probabilities = st.floats(0.0, 1.0).map(lambda number: round(number, 6))
link_sets = st.frozensets(links, max_size=8)
golds = st.builds(lambda sure, more: Gold(sure, sure | more), link_sets, link_sets)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def weighted(draw: st.DrawFn) -> Gold:
    """Draw links with a probability each."""
    gold = draw(golds)
    return Gold(gold.sure, gold.possible, {link: draw(probabilities) for link in sorted(gold.possible)})


@st.composite
def records(draw: st.DrawFn, line: int = 1) -> dict[str, Any]:
    """Draw a sentence with matrices that fit its words, whatever these are."""
    sizes = [draw(st.integers(0, 3)) for _ in range(4)]
    src, tgt, src_pieces, tgt_pieces = ([draw(texts) for _ in range(size)] for size in sizes)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    given_links = draw(st.sets(st.builds(Link, st.integers(0, 2), st.integers(0, 2)), max_size=4))
    return alignment_record(
        line=line,
        source=draw(texts),
        target=draw(texts),
        source_words=src,
        target_words=tgt,
        source_spans=[(0, 1)] * len(src),
        target_spans=[(0, 1)] * len(tgt),
        source_pieces=[*src_pieces, "</s>"],
        target_pieces=[*tgt_pieces, "</s>"],
        weights=random.uniform(size=(len(tgt_pieces) + 1, len(src_pieces) + 1)).astype(np.float32),
        word_weights=random.uniform(size=(len(tgt), len(src) + 1)),
        links=given_links,
        probabilities={link: draw(probabilities) for link in given_links},
        possible=draw(st.sets(st.sampled_from(sorted(given_links)))) if given_links else (),
        reverse_word_weights=random.uniform(size=(len(src), len(tgt) + 1)) if draw(st.booleans()) else None,
    )


def anchored(sentences: list[Gold]) -> list[Gold]:
    """Put a link of both first words in front, which tells that a Pharaoh file counts from 0."""
    first = Gold(frozenset({Link(0, 0)}), frozenset({Link(0, 0)}), {Link(0, 0): 1.0})
    return [first, *sentences]


@ROUND_TRIP
@given(st.lists(weighted(), max_size=4))
def test_pharaoh_round_trips(tmp_path: Path, sentences: list[Gold]) -> None:
    path = tmp_path / "links"
    path.write_text("".join(format_gold(gold) + "\n" for gold in anchored(sentences)))
    read = read_alignments(path)
    assert (read.sentences, read.format, read.base) == (anchored(sentences), "Pharaoh", 0)


@ROUND_TRIP
@given(st.lists(weighted(), max_size=4))
def test_probabilities_round_trip(tmp_path: Path, sentences: list[Gold]) -> None:
    path = tmp_path / "links"
    lines = [format_probabilities(gold.possible, gold.probabilities) for gold in anchored(sentences)]
    path.write_text("".join(line + "\n" for line in lines))
    for gold, read in zip(anchored(sentences), read_alignments(path).sentences, strict=True):
        assert read.possible == gold.possible
        assert read.probabilities == gold.probabilities


@ROUND_TRIP
@given(st.lists(weighted(), max_size=4))
def test_naacl_round_trips(tmp_path: Path, sentences: list[Gold]) -> None:
    path = tmp_path / "links"
    sentences = anchored(sentences)
    path.write_text("".join(format_naacl(gold, line) for line, gold in enumerate(sentences, start=1)))
    read = read_alignments(path, sentences=len(sentences))
    assert (read.format, read.base) == ("NAACL", 1)
    assert read.sentences == sentences
    assert [gold.probabilities for gold in read.sentences] == [gold.probabilities for gold in sentences]


@ROUND_TRIP
@given(st.lists(records(), min_size=1, max_size=3))
def test_json_lines_round_trip(tmp_path: Path, sentences: list[dict[str, Any]]) -> None:
    path = tmp_path / "links"
    path.write_bytes("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in sentences).encode())
    assert read_records(path) == sentences
    check_links(path, "JSON lines", sentences)


@ROUND_TRIP
@given(st.lists(records(), min_size=1, max_size=3))
def test_npz_round_trips(tmp_path: Path, sentences: list[dict[str, Any]]) -> None:
    path = tmp_path / "links"
    with path.open("wb") as file:
        write_npz(file, sentences)
    for record, read in zip(sentences, read_records(path), strict=True):
        assert read.keys() == record.keys()
        for name, value in record.items():
            if name.endswith("weights"):
                np.testing.assert_allclose(read[name], np.asarray(value).reshape(read[name].shape), atol=1e-6)
            else:
                assert read[name] == value
    check_links(path, "NPZ", sentences)


def check_links(path: Path, format: str, sentences: list[dict[str, Any]]) -> None:
    read = read_alignments(path)
    assert (read.format, read.base) == (format, 0)
    for gold, record in zip(read.sentences, sentences, strict=True):
        assert gold.possible == {Link(*link) for link in record["links"]}
        assert gold.possible - gold.sure == {Link(*link) for link in record.get("possible", [])}
        assert gold.probabilities == {
            Link(*link): value for link, value in zip(record["links"], record["probabilities"], strict=True)
        }


@pytest.mark.parametrize(
    ("lines", "base", "first"),
    [
        (["0-0 1-1"], 0, Link(0, 0)),
        (["1-1 2-2"], 0, Link(1, 1)),  # too few sentences to tell
        (["1-1 2-2"] * 19, 0, Link(1, 1)),
        (["1-1 2-2"] * 20, 1, Link(0, 0)),
        (["1-1 2-2"] * FEWEST_TO_DETECT, 1, Link(0, 0)),
        (["1-1 2-2"] * FEWEST_TO_DETECT + ["3-0"], 0, Link(1, 1)),
        (["1-1"] + [""] * FEWEST_TO_DETECT, 0, Link(1, 1)),  # sentences without links tell nothing
    ],
)
def test_the_first_number_is_detected_and_said(tmp_path: Path, lines: list[str], base: int, first: Link) -> None:
    path = tmp_path / "links"
    path.write_text("".join(line + "\n" for line in lines))
    read = read_alignments(path)
    assert (read.base, min(read.sentences[0].sure)) == (base, first)
    assert f"counted from {base} (" in read.said(path)


def test_the_first_number_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("1-2 3p1\n")
    assert read_alignments(path, "1").sentences == [parse_gold("0-1 2p0", "here")]
    assert read_alignments(path, "0").sentences == [parse_gold("1-2 3p1", "here")]
    path.write_text("0-2\n")
    with pytest.raises(DataError, match="there is a word 0"):
        read_alignments(path, "1")


def test_a_naacl_file_may_count_from_0(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("1 0 2 S\n1 1 0 P\n")
    read = read_alignments(path, "0")
    assert (read.sentences, read.base) == ([parse_gold("0-2 1p0", "here")], 0)
    assert read_alignments(path, "1", 1).sentences == [parse_gold("", "here")], "a word 0 is no word"


def test_naacl_as_others_write_it(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("0001 1 1 S\n0001 2 3 P\n0003 4 0\n0003 2\t2 0.5\n\n")
    read = read_alignments(path)
    assert read.sentences == [parse_gold("0-0 1p2", "here"), parse_gold("", "here"), parse_gold("1-1", "here")]
    assert read.sentences[2].probabilities == {Link(1, 1): 0.5}
    assert len(read_alignments(path, sentences=5).sentences) == 5
    with pytest.raises(DataError, match="sentence 3, but there are only 2"):
        read_alignments(path, sentences=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 1 1 S\n1 1 x\n", ":2: '1 1 x' is not a link"),
        (b"0 1 1\n", ":1: '0 1 1' is not a link"),
        (b"999999999 1 1\n", "is not a link"),
        (b"0-0:much\n", "is not a link"),
        (b"0-0\n\n1_1\n", ":3: '1_1' is not a link"),
        (b"0-0:nan\n", "is not a link"),
        (b"{}\n", ':1: a line must be a JSON object with "links"'),
        (b'{"links": [[0]]}\n', "must be pairs of word numbers"),
        (b'{"links": [[0, -1]]}\n', "must be pairs of word numbers"),
        (b'{"links": [["0", 1]]}\n', "must be pairs of word numbers"),
        (b'{"links": 3}\n', "must be pairs of word numbers"),
        (b'{"links": []}\nno\n', ":2: not JSON"),
        (b"PK\x03\x04 and so on", "not an NPZ file"),
    ],
)
def test_what_is_no_alignment_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "links"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_alignments(path)
    assert message in str(caught.value)


def test_a_damaged_npz_is_read_or_refused(tmp_path: Path) -> None:
    path, buffer = tmp_path / "links", io.BytesIO()
    words = [f"word{number}" for number in range(50)]
    write_npz(buffer, [{"source_words": words, "links": [[number, number] for number in range(50)]}])
    whole, refused = buffer.getvalue(), 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            read_records(path)
        except DataError:
            refused += 1
    assert refused > 20


def test_sentences_without_links_at_the_end_of_a_naacl_file(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("1 1 1 S\n3 2 1 P\n")
    assert [len(gold.possible) for gold in read_alignments(path).sentences] == [1, 0, 1]
    assert [len(gold.possible) for gold in read_alignments(path).filled(5).sentences] == [1, 0, 1, 0, 0]
    assert len(read_alignments(path).filled(2).sentences) == 3
    assert [len(gold.possible) for gold in read_alignments(path).filled(4).sentences] == [1, 0, 1, 0]


def test_an_npz_with_a_pickle_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, records=np.array([{"links": []}], dtype=object))
    (tmp_path / "links").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="not an NPZ file"):
        read_alignments(tmp_path / "links")


def test_links_come_from_stdin_which_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "links").write_text("0-0 1p2\n")
    for _ in range(2):
        with (tmp_path / "links").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert read_alignments(Path("-")).sentences == [parse_gold("0-0 1p2", "here")]
            os.fstat(stdin.fileno())
