"""Lines as they come, files beside the input, and answers that were given before."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from translate.decoding import stream
from translate.decoding.stream import LineAlignedFile, count_answered, line_chunks
from translate.errors import DataError


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    path = tmp_path / "seven"
    path.write_text("".join(f"line {number}\n" for number in range(7)))
    return path


def test_a_file_comes_in_large_pieces(seven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(line_chunks(seven)) == [[f"line {number}" for number in range(7)]]
    monkeypatch.setattr(stream, "MOST_LINES", 3)
    assert [len(chunk) for chunk in line_chunks(seven)] == [3, 3, 1]
    assert list(line_chunks(seven, skip=5)) == [["line 5", "line 6"]]
    assert list(line_chunks(seven, skip=7)) == []
    with pytest.raises(DataError, match="seven has 7 lines, but 8 are answered already"):
        list(line_chunks(seven, skip=8))


def test_a_pipe_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line comes before the next one is written, for the writer waits for it."""
    monkeypatch.setattr(stream, "MOST_LINES", 2)
    pipe, arrived = tmp_path / "pipe", threading.Semaphore(0)
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as file:
            for number in range(3):
                file.write(f"line {number}\n")
                file.flush()
                assert arrived.acquire(timeout=10)
            file.write("".join(f"more {number}\n" for number in range(5)))

    writer = threading.Thread(target=write)
    writer.start()
    chunks = []
    for chunk in line_chunks(pipe):
        chunks.append(chunk)
        arrived.release()
    writer.join()
    assert chunks[:3] == [["line 0"], ["line 1"], ["line 2"]]
    assert [line for chunk in chunks[3:] for line in chunk] == [f"more {number}" for number in range(5)]
    assert max(map(len, chunks)) <= 2


def test_what_is_wrong_in_a_pipe_is_told_after_the_lines_before_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"good\n\xff\n"))
    writer.start()
    found: list[list[str]] = []
    with pytest.raises(DataError, match=r"pipe:2"):
        found.extend(line_chunks(pipe))
    writer.join()
    assert found == [["good"]]


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent"):
        list(line_chunks(tmp_path / "absent"))


def test_a_file_beside_the_input_has_a_line_for_each(seven: Path) -> None:
    beside = LineAlignedFile(seven)
    assert beside.next(2) == ["line 0", "line 1"]
    assert beside.next(5)[-1] == "line 6"
    beside.end()
    with pytest.raises(DataError, match="seven has 7 lines, the input has more"):
        beside.next(1)
    beside = LineAlignedFile(seven, skip=4)
    assert beside.next(2) == ["line 4", "line 5"]
    with pytest.raises(DataError, match="more lines than the input, which has 6"):
        beside.end()
    with pytest.raises(DataError, match="has 7 lines, the input has more"):
        LineAlignedFile(seven, skip=6).next(2)


@pytest.mark.parametrize(
    ("content", "per_line", "answered", "left"),
    [
        (b"", 1, 0, b""),
        (b"a\nb\n", 1, 2, b"a\nb\n"),
        (b"a\nb\nhalf", 1, 2, b"a\nb\n"),
        (b"a\nb\nc\n", 2, 1, b"a\nb\n"),
        (b"a\nb\nc\nd\nhalf", 2, 2, b"a\nb\nc\nd\n"),
        (b"a\nb\n", 3, 0, b""),
    ],
)
def test_answers_given_before_are_counted(
    tmp_path: Path, content: bytes, per_line: int, answered: int, left: bytes
) -> None:
    path = tmp_path / "answers"
    path.write_bytes(content)
    assert count_answered(path, per_line) == answered
    assert path.read_bytes() == left


def test_no_answers_yet(tmp_path: Path) -> None:
    assert count_answered(tmp_path / "answers", 1) == 0
    with pytest.raises(DataError, match="cannot be continued"):
        count_answered(tmp_path, 1)
