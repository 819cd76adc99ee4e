"""Word alignments as text: Pharaoh files, gold files with sure and possible links, JSON records.

All word numbers are 0-based and go source-target: `2-3` links source word 2 to target word 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from translate.errors import DataError
from translate.text.corpus import read_lines

FloatArray = npt.NDArray[np.floating[Any]]
Parsed = TypeVar("Parsed")

JSON_DECIMALS = 6
LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")
TOKEN = re.compile(r"[^ \t\r]+")  # str.split() would also split at U+2028 and U+0085


class Link(NamedTuple):
    """A source word and the target word that translates it, both counted from 0."""

    source: int
    target: int


@dataclass(frozen=True)
class Gold:
    """The reference links of a sentence: an aligner must find the sure ones and may give the possible ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        assert self.sure <= self.possible, "every sure link is also a possible one"


def parse_pharaoh(line: str, where: str) -> list[Link]:
    """Read a line of `i-j` links in the order they are written; an empty line has none."""
    return [link for link, _ in _parse_links(line, where, kinds="-", allowed="i-j, for example 0-0 2-1")]


def parse_gold(line: str, where: str) -> Gold:
    """Read a line of `i-j` (sure) and `ipj` (possible) links; an empty line has none."""
    parsed = _parse_links(line, where, kinds="-p", allowed="i-j (sure) or ipj (possible), for example 0-0 2p1")
    sure = frozenset(link for link, kind in parsed if kind == "-")
    return Gold(sure=sure, possible=frozenset(link for link, _ in parsed))


def format_pharaoh(links: Iterable[Link]) -> str:
    """Write each link once as `i-j`, sorted by source word, then by target word."""
    return " ".join(f"{link.source}-{link.target}" for link in sorted(set(links)))


def read_pharaoh(path: Path) -> list[list[Link]]:
    """Read the links of every line of a Pharaoh file; `-` is stdin."""
    return _read_lines(path, parse_pharaoh)


def read_gold(path: Path) -> list[Gold]:
    """Read the reference links of every line of a gold file; `-` is stdin."""
    return _read_lines(path, parse_gold)


def alignment_record(
    *,
    line: int,
    source: str,
    target: str,
    source_words: Sequence[str],
    target_words: Sequence[str],
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    weights: FloatArray,
    word_weights: FloatArray,
    links: Collection[Link],
) -> dict[str, Any]:
    """Put all that is known about the alignment of one sentence (`line` counts from 1) into a JSON object.

    `weights` covers all pieces and `</s>` of both sides; the last column of `word_weights` stands for "no word".
    """
    assert weights.shape == (len(target_pieces), len(source_pieces)), "weights are (T, S)"
    assert word_weights.shape == (len(target_words), len(source_words) + 1), "word weights are (J, I + 1)"
    return {
        "line": line,
        "source": source,
        "target": target,
        "source_words": list(source_words),
        "target_words": list(target_words),
        "source_pieces": list(source_pieces),
        "target_pieces": list(target_pieces),
        "weights": _json_matrix(weights),
        "word_weights": _json_matrix(word_weights),
        "links": [[link.source, link.target] for link in sorted(links)],
    }


def _json_matrix(matrix: FloatArray) -> list[list[float]]:
    """Round in float64: float32 values have twelve meaningless digits more when they are written."""
    rows: list[list[float]] = matrix.astype(np.float64).round(JSON_DECIMALS).tolist()
    return rows


def _parse_links(line: str, where: str, kinds: str, allowed: str) -> list[tuple[Link, str]]:
    """Read the links of a line, each with the sign between its numbers."""
    links = []
    for token in TOKEN.findall(line):
        match = LINK.fullmatch(token)
        if match is None or match[2] not in kinds:
            raise DataError(f"{where}: {token[:40]!r} is not a link. A link is {allowed}, words counted from 0.")
        links.append((Link(int(match[1]), int(match[3])), match[2]))
    return links


def _read_lines(path: Path, parse: Callable[[str, str], Parsed]) -> list[Parsed]:
    """Parse every line of a file; `-` is stdin."""
    return [parse(line, f"{path}:{number}") for number, line in enumerate(read_lines(path), start=1)]
