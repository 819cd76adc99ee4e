"""The seeds of the unigram trainer are what a slow search through all words finds."""

import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from translate.text.seeds import seed_pieces

LONGEST = 16


def slow_seeds(words: Counter[str]) -> dict[str, int]:
    counts = Counter[str]()
    followers: dict[str, set[str]] = {}
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 2, min(start + LONGEST, len(word)) + 1):
                counts[word[start:end]] += count
                followers.setdefault(word[start:end], set()).add(word[end : end + 1])
    return {piece: count for piece, count in counts.items() if "" in followers[piece] or len(followers[piece]) > 1}


@settings(deadline=None)
@given(st.dictionaries(st.text("▁ab我😀", min_size=1, max_size=40), st.integers(1, 9), max_size=12))
@example({})
@example({"▁": 3, "a": 1})
@example({"▁" + "a" * 60: 2, "▁" + "a" * 15 + "b": 1})
@example({"▁" + "a" * 14 + "bx": 1, "▁" + "a" * 14 + "c": 1, "▁" + "a" * 14 + "by": 1})
@example({"▁b😀x": 1, "▁c😀x": 1, "▁b😀xy": 1})
def test_seeds_are_all_strings_in_words_that_end_one_or_branch(words: dict[str, int]) -> None:
    seeds = list(seed_pieces(Counter(words), most=10_000))
    assert dict(seeds) == slow_seeds(Counter(words))
    assert len(dict(seeds)) == len(seeds)
    covered = [count * len(piece) for piece, count in seeds]
    assert covered == sorted(covered, reverse=True)


def test_a_limit_keeps_those_that_cover_most() -> None:
    words = Counter({"▁these": 5, "▁the": 40, "▁see": 7, "▁house": 2})
    every = list(seed_pieces(words, most=100))
    assert list(seed_pieces(words, most=3)) == every[:3]
    assert every[0] == ("▁the", 45)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_words_changes_nothing_but_ties(seed: int) -> None:
    words = Counter({"▁these": 5, "▁the": 40, "▁see": 7, "▁house": 2})
    shuffled = random.Random(seed).sample(list(words.items()), len(words))
    assert set(seed_pieces(Counter(dict(shuffled)), most=100)) == set(seed_pieces(words, most=100))
