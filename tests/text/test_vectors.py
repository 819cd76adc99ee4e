"""Word vectors: which line serves which piece, and what is said about a file that is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from translate.errors import DataError
from translate.text.vectors import read_vectors

WIDTH = 3
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "words.vec"


def found(file: Path, *pieces: str) -> dict[str, float]:
    """The first number of each piece that was found; the two others follow from it."""
    vectors = read_vectors(file, [*SPECIAL, *pieces], WIDTH)
    for vector in vectors.values():
        assert vector.dtype == np.float32
        assert vector.tolist() == [vector[0], -vector[0], 0.5]
    return {[*SPECIAL, *pieces][index]: float(vector[0]) for index, vector in vectors.items()}


def line(token: str, value: int) -> str:
    return f"{token} {value} {-value}.0 5e-1\n"


@pytest.mark.parametrize("header", ["", "3 3\n", "3 3 \n", "999 3\n", "\ufeff3 3\n"])
@pytest.mark.parametrize("ending", ["\n", " \n", "\r\n"])
def test_with_and_without_a_first_line(file: Path, header: str, ending: str) -> None:
    text = header + line("the", 1) + line("我们", 2) + line("été", 3)
    file.write_bytes(text.replace("\n", ending).encode())
    assert found(file, "▁the", "▁我们", "▁été", "▁none") == {"▁the": 1, "▁我们": 2, "▁été": 3}


@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        (["dog", "DOG", "▁dog", "Dog", "▁Dog"], 5),  # its own name
        (["dog", "DOG", "▁dog", "Dog"], 4),  # without the mark
        (["DOG", "dog"], 2),  # in lower case
        (["▁dog", "DOG"], 1),
        (["DOG", "▁DOG"], None),  # never in capitals that are not its own
        (["Dog", "Dog"], 1),  # the first of two
    ],
)
def test_the_best_name_wins_wherever_it_stands(file: Path, tokens: list[str], value: int | None) -> None:
    for order in (tokens, tokens[::-1]) if len(set(tokens)) == len(tokens) else (tokens,):
        file.write_text("".join(line(token, tokens.index(token) + 1) for token in order))
        assert found(file, "▁Dog") == ({} if value is None else {"▁Dog": value})


def test_only_the_beginning_of_a_word_loses_its_mark(file: Path) -> None:
    file.write_text(line("ing", 1) + line("▁", 2) + line("ping", 3))
    assert found(file, "▁ing", "ING", "▁", "▁p▁ing") == {"▁ing": 1, "ING": 1, "▁": 2}


def test_a_line_may_serve_many_pieces_and_the_special_ones_but_padding(file: Path) -> None:
    file.write_text(line("<pad>", 1) + line("</s>", 2) + line("a", 3))
    assert found(file, "a", "▁a", "A", "▁A") == {"</s>": 2, "a": 3, "▁a": 3, "A": 3, "▁A": 3}


def test_odd_tokens(file: Path) -> None:
    """Tokens that contain spaces or separators, or that look like numbers."""
    tokens = ["at name@domain.com", ". . .", "a\u00a0b", "c\u2028d", "7", "3.5"]
    file.write_text("".join(line(token, value) for value, token in enumerate(tokens, start=1)))
    names = [f"▁{token}" for token in tokens]
    assert found(file, *names) == {name: value for value, name in enumerate(names, start=1)}


def test_numbers_nobody_needs_are_not_read(file: Path) -> None:
    file.write_text(line("a", 1) + "b x y z\n")
    assert found(file, "▁a") == {"▁a": 1}


def complaint(file: Path, content: str | bytes) -> str:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        read_vectors(file, [*SPECIAL, "▁a", "▁b"], WIDTH)
    return str(caught.value)


@pytest.mark.parametrize("content", ["9 2\na 1 2\n", "a 1 2\n", "9 4\n", "a 1 2 3 4\n"])
def test_another_width_is_told_with_the_setting(file: Path, content: str) -> None:
    width = 2 if "2\n" in content else 4
    message = complaint(file, content)
    assert message.startswith(f"{file}:1: the vectors are {width} wide, but model.embedding.width = 3. ")
    assert f"Set model.embedding.width={width}" in message


@pytest.mark.parametrize(
    "wrong",
    [
        "b 1 2",
        "b 1 2 3 4",
        "b",
        "c 1 2",
        "c 1 2 3 4",
        "b 1 2 x",
        "b 1  3",
        "b 1 nan 3",
        "b 1 2 inf",
        "b 1 2 1e60",
        "b\t1\t2\t3",
    ],
)
@pytest.mark.parametrize("before", [line("a", 1), "2 3\n"])
def test_a_malformed_line_is_named(file: Path, wrong: str, before: str) -> None:
    message = complaint(file, f"{before}{wrong}\n")
    assert message.startswith(f"{file}:2: ")
    assert "is not a token and 3 finite numbers" in message


def test_of_a_long_line_the_beginning_is_shown(file: Path) -> None:
    for length in (60, 61):
        wrong = "b" * (length - 4) + " 1 x"
        shown = wrong if length == 60 else f"{wrong[:60]}…"
        assert f": {shown!r} is not a token" in complaint(file, f"2 3\n{wrong}\n")


@pytest.mark.parametrize("content", [b"a 1 2 3\nb\xe9 1 2 3\n", b"2 3\na\xff\xfe\x00\x01\n"])
def test_bytes_that_are_no_text_are_named(file: Path, content: bytes) -> None:
    assert complaint(file, content).startswith(f"{file}:2: not valid UTF-8")


@pytest.mark.parametrize("content", ["", "\n", "0 3\n", "5 3\n\n \n"])
def test_a_file_without_vectors_is_told(file: Path, content: str) -> None:
    assert complaint(file, content).startswith(f"{file} holds no vectors")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "none", SPECIAL, WIDTH)
