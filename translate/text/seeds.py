"""Seeds: the pieces from which sentencepiece's unigram trainer selects the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_LONGEST_PIECE = 16  # sentencepiece's default
_CHARACTER_BITS, _CHARACTERS_IN_KEY = 21, 3  # characters that fit into a key of 64 bits
_END = "\0"


def seed_pieces(words: Counter[str], most: int) -> Iterator[tuple[str, int]]:
    """The repeated strings inside words that cover most of the text, best first, with their counts.

    A string is a seed if a word ends with it or if different characters follow it; otherwise the string that is one
    character longer has the same frequency. Single characters are left out: sentencepiece adds them itself.
    """
    text = _END.join(words) + _END * (_LONGEST_PIECE + _CHARACTERS_IN_KEY)
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    lengths = np.fromiter((len(word) + len(_END) for word in words), np.int64, len(words))
    word_counts = np.repeat(np.fromiter(words.values(), np.int64, len(words)), lengths)  # of each character's word

    starts = np.flatnonzero(characters)
    starts = starts[np.lexsort(_sort_keys(characters, starts))]  # equal strings of any length are neighbours now
    group = np.zeros(len(starts), np.int64)  # equal for neighbours that have the same first `length` characters
    found = [np.zeros((3, 0), np.int64)]
    for length in range(1, _LONGEST_PIECE + 1):
        last = characters[starts + length - 1]
        inside = last != 0
        starts, group, last = starts[inside], group[inside], last[inside]
        is_first = np.append(True, (group[1:] != group[:-1]) | (last[1:] != last[:-1]))[: len(last)]
        group = np.cumsum(is_first)
        first = np.flatnonzero(is_first)
        if length > 1 and len(first):
            counts = np.add.reduceat(word_counts[starts], first)
            final = np.append(first[1:], len(starts)) - 1
            least, greatest = characters[starts[first] + length], characters[starts[final] + length]  # that follow
            is_seed = (least == 0) | (least != greatest)  # 0 is the end of a word
            found.append(np.stack([starts[first], np.full(len(first), length), counts])[:, is_seed])
    start, length_of, count = np.concatenate(found, axis=1)
    for index in np.argsort(-count * length_of, kind="stable")[:most].tolist():
        yield text[start[index] : start[index] + length_of[index]], int(count[index])


def _sort_keys(characters: NDArray[np.uint32], starts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Keys for np.lexsort: the characters from each start on, as many as the longest piece has and one more."""
    keys = []
    for offset in range(0, _LONGEST_PIECE + 1, _CHARACTERS_IN_KEY):
        key = np.zeros(len(starts), np.int64)
        for place in range(offset, offset + _CHARACTERS_IN_KEY):
            key = key << _CHARACTER_BITS | characters[starts + place]
        keys.append(key)
    return keys[::-1]
