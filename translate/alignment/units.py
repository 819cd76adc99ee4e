"""What is linked: words between ASCII spaces, or in languages without spaces, the characters that a piece covers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]

# Languages that are written without spaces between words, by their codes in ISO 639.
UNSPACED = {"zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "ja", "jpn", "th", "tha", "lo", "lao", "km", "khm"} | {
    *("my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"),
}
WORD = re.compile(r"[^ ]+")  # only an ASCII space ends a word: U+3000 can be one


@dataclass(frozen=True)
class Units:
    """The words of a side: their texts, the characters of each, and the word of every piece (-1: none)."""

    texts: list[str]
    spans: list[Span]
    of_piece: list[int]


def without_spaces(language: str) -> bool:
    """Tell whether a language code, as in `zh` or `zh-Hant`, names a language without spaces between words."""
    return re.split(r"[-_]", language.lower())[0] in UNSPACED


def words(text: str) -> tuple[list[str], list[Span]]:
    """The words of a text and their spans."""
    found = list(WORD.finditer(text))
    return [match[0] for match in found], [match.span() for match in found]


def word_units(text: str, of_piece: Sequence[int]) -> Units:
    """Words between spaces; `of_piece` comes from the tokenizer."""
    return Units(*words(text), list(of_piece))


def span_units(text: str, spans: Sequence[Span], others: Sequence[Span] = ()) -> Units:
    """Units of the characters that pieces cover: pieces that share a character are in one unit.

    Pieces without characters are in none. `others` are the spans of a second tokenizer's pieces, for units that neither
    tokenizer cuts.
    """
    units: list[Span] = []
    for begin, end in sorted(span for span in (*spans, *others) if span[0] < span[1]):
        if units and begin < units[-1][1]:
            units[-1] = (units[-1][0], max(units[-1][1], end))
        else:
            units.append((begin, end))
    starts = [begin for begin, _ in units]
    of_piece = [bisect_right(starts, begin) - 1 if begin < end else -1 for begin, end in spans]
    return Units([text[begin:end] for begin, end in units], units, of_piece)


def cut(units: Units, num_pieces: int) -> Units:
    """The units of the first `num_pieces` pieces, which were read: a matrix of all words of a line could be huge."""
    if num_pieces >= len(units.of_piece):
        return units
    of_piece = units.of_piece[:num_pieces]
    count = max(of_piece, default=-1) + 1
    return Units(units.texts[:count], units.spans[:count], of_piece)
