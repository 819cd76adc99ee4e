"""Word vectors of a vocabulary's pieces, read from a text file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from translate.errors import DataError
from translate.text.corpus import read_lines
from translate.text.tokenizer import PAD, SPACE

Vector = NDArray[np.float32]

_HEADER = re.compile("[0-9]+ ([0-9]+)")


def read_vectors(path: Path, pieces: Sequence[str], width: int) -> dict[int, Vector]:
    """The vectors of those pieces that a file contains, by the piece's number; padding has none.

    The file is word2vec's text format, with or without its first line "COUNT WIDTH". Every line's shape is checked, but
    numbers are parsed only for lines that a piece needs, because these are few in a large file.
    """
    ranked = _ranked(pieces)
    vectors: dict[int, Vector] = {}
    best: dict[int, int] = {}
    empty = True
    for number, raw in enumerate(read_lines(path), start=1):
        line, where = raw.rstrip(" "), f"{path}:{number}"  # word2vec itself ends its lines with a space
        if number == 1:
            header = _HEADER.fullmatch(line)
            _check_width(int(header[1]) if header else _width_of(line), width, where)
            if header:
                continue
        if not line:
            continue
        token, values = _split(line, width, where)
        empty = False
        for index, rank in ranked.get(token, ()):
            if rank < best.get(index, rank + 1):  # if two lines have the same token, the first is used
                best[index], vectors[index] = rank, _numbers(values, width, where)
    if empty:
        raise DataError(f"{path} holds no vectors. Each line must be a token and {width:,} numbers, one space apart.")
    return vectors


def _ranked(pieces: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """For each usable token, the pieces it can stand for, each with a rank; the lowest rank is the best."""
    ranked: dict[str, list[tuple[int, int]]] = {}
    for index, piece in enumerate(pieces):
        if index != PAD:
            for rank, name in enumerate(_names(piece)):
                ranked.setdefault(name, []).append((index, rank))
    return ranked


def _names(piece: str) -> Iterator[str]:
    """Tokens that can stand for a piece, best first: the piece, without its mark of a space, both in lower case."""
    names = [piece, piece.removeprefix(SPACE)]
    names += [name.lower() for name in names]
    yield from filter(None, dict.fromkeys(names))


def _check_width(found: int | None, width: int, where: str) -> None:
    if found is not None and found != width:
        raise DataError(
            f"{where}: the vectors are {found:,} wide, but model.embedding.width = {width}. "
            f"Set model.embedding.width={found}, or give vectors that are {width:,} wide."
        )


def _width_of(line: str) -> int | None:
    """How many numbers follow the token, or None if not all of the values are numbers."""
    _, *values = line.split(" ")
    return len(values) if values and all(map(_is_number, values)) else None


def _split(line: str, width: int, where: str) -> tuple[str, str]:
    """The token and its numbers, both as text."""
    spaces = line.count(" ")
    if spaces == width:
        token, _, values = line.partition(" ")
        return token, values
    # Tokens of GloVe's largest file contain spaces, so a line is too long only if the token ends in a number.
    token = line.rsplit(" ", width)[0]
    if spaces < width or _is_number(token.rpartition(" ")[2]):
        raise _malformed(line, width, where)
    return token, line[len(token) + 1 :]


def _numbers(values: str, width: int, where: str) -> Vector:
    numbers = [float(value) if _is_number(value) else np.nan for value in values.split(" ")]
    with np.errstate(over="ignore"):
        vector = np.array(numbers, np.float32)
    if not np.isfinite(vector).all():
        raise _malformed(values, width, where)
    return vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _malformed(line: str, width: int, where: str) -> DataError:
    shown = line if len(line) <= 60 else f"{line[:60]}…"
    return DataError(
        f"{where}: {shown!r} is not a token and {width:,} finite numbers, one space apart. "
        "Correct or remove the line; binary files must be converted to text."
    )
