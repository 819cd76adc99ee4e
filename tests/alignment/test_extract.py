"""Weights of pieces become weights of words, and these become links."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.alignment.extract import METHODS, Extraction, argmax_links, near_diagonal, shift_weights, word_weights
from translate.alignment.formats import FloatArray, Link


@st.composite
def sentences(draw: st.DrawFn) -> tuple[FloatArray, list[int], list[int], int, int]:
    """Draw weights (T, S) whose rows sum to at most one, and the word of every piece."""
    num_src_words, num_tgt_words = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    src_words = draw(st.lists(st.integers(-1, num_src_words - 1), min_size=1, max_size=6))
    tgt_words = draw(st.lists(st.integers(-1, num_tgt_words - 1), min_size=1, max_size=7))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    weights = random.dirichlet(np.ones(len(src_words)), size=len(tgt_words)) * random.uniform(size=(len(tgt_words), 1))
    return weights, src_words, tgt_words, num_src_words, num_tgt_words


def test_source_pieces_are_summed_and_target_pieces_averaged() -> None:
    weights = np.array(
        [
            [0.1, 0.2, 0.3, 0.4],  # target word 0, first piece
            [0.5, 0.1, 0.0, 0.4],  # target word 0, second piece
            [0.0, 0.0, 0.9, 0.1],  # target word 1
            [0.0, 0.0, 0.0, 1.0],  # </s>
        ]
    )
    words = word_weights(weights, [0, 0, 1, -1], [0, 0, 1, -1], num_src_words=2, num_tgt_words=2)
    np.testing.assert_allclose(words, [[0.45, 0.15, 0.4], [0.0, 0.9, 0.1]])


def test_a_word_without_pieces_has_no_weight() -> None:
    words = word_weights(np.array([[0.7, 0.3]]), [2, -1], [1], num_src_words=3, num_tgt_words=2)
    np.testing.assert_allclose(words, [[0, 0, 0, 0], [0, 0, 0.7, 0.3]])


@given(sentences())
def test_no_weight_is_lost(sentence: tuple[FloatArray, list[int], list[int], int, int]) -> None:
    weights, _, tgt_words, num_src_words, num_tgt_words = sentence
    words = word_weights(*sentence)
    assert words.shape == (num_tgt_words, num_src_words + 1)
    for word in range(num_tgt_words):
        pieces = [piece for piece, its_word in enumerate(tgt_words) if its_word == word]
        expected = weights[pieces].sum(axis=1).mean() if pieces else 0.0
        assert words[word].sum() == pytest.approx(expected)


@given(sentences(), st.integers(1, 3))
def test_padding_changes_nothing(sentence: tuple[FloatArray, list[int], list[int], int, int], more: int) -> None:
    weights, src_words, tgt_words, num_src_words, num_tgt_words = sentence
    padded = np.pad(weights, ((0, more), (0, more)))
    outside = [-1] * more
    after = word_weights(padded, src_words + outside, tgt_words + outside, num_src_words, num_tgt_words)
    np.testing.assert_allclose(after, word_weights(*sentence))


@given(sentences())
def test_words_of_one_piece_keep_their_weights(sentence: tuple[FloatArray, list[int], list[int], int, int]) -> None:
    weights = sentence[0]
    num_tgt, num_src = weights.shape
    words = word_weights(weights, range(num_src), range(num_tgt), num_src, num_tgt)
    np.testing.assert_allclose(words, np.pad(weights, ((0, 0), (0, 1))))


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ([0.2, 0.5, 0.3], 1),
        ([0.5, 0.2, 0.3], 0),
        ([0.3, 0.3, 0.4], None),  # `</s>` has most: aligned to nothing
        ([0.4, 0.4, 0.2], 0),  # the first of equals
        ([0.4, 0.2, 0.4], 0),  # a word before nothing
        ([0.0, 0.0, 0.0], None),
        ([float("nan"), 0.5, 0.5], None),
    ],
)
def test_the_greatest_weight_makes_the_link(row: list[float], source: int | None) -> None:
    words = np.array([[0.0, 0.0, 1.0], row])
    assert argmax_links(words) == ([] if source is None else [Link(source=source, target=1)])


@pytest.mark.parametrize("shape", [(0, 1), (0, 4), (3, 1)])
def test_an_empty_side_has_no_links(shape: tuple[int, int]) -> None:
    assert argmax_links(np.ones(shape)) == []


@given(sentences())
def test_every_target_word_has_at_most_one_link(sentence: tuple[FloatArray, list[int], list[int], int, int]) -> None:
    links = argmax_links(word_weights(*sentence))
    targets = [link.target for link in links]
    assert len(targets) == len(set(targets))
    assert all(0 <= link.source < sentence[3] and 0 <= link.target < sentence[4] for link in links)


@pytest.mark.parametrize("src_words", [[0, -2], [0, 2]])
def test_a_word_outside_the_sentence_is_our_bug(src_words: list[int]) -> None:
    with pytest.raises(AssertionError):
        word_weights(np.ones((1, 2)), src_words, [0], num_src_words=2, num_tgt_words=1)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("argmax", {(0, 0), (2, 2)}),
        ("threshold", {(0, 0), (1, 0), (1, 1)}),
        ("both", {(0, 0), (1, 0), (1, 1), (2, 2)}),
    ],
)
def test_methods_by_hand(method: str, expected: set[tuple[int, int]]) -> None:
    weights = np.array(
        [
            [0.5, 0.4, 0.0, 0.1],
            [0.0, 0.4, 0.0, 0.6],  # most on nothing, yet one word above the threshold
            [0.2, 0.2, 0.35, 0.25],  # the greatest is below the threshold
        ]
    )
    assert set(Extraction(method, threshold=0.4).links(weights)) == expected


@given(sentences(), st.floats(0.0, 1.0))
def test_both_is_argmax_and_threshold(
    sentence: tuple[FloatArray, list[int], list[int], int, int], least: float
) -> None:
    weights = word_weights(*sentence)
    links = {method: set(Extraction(method, least).links(weights)) for method in METHODS}
    assert links["both"] == links["argmax"] | links["threshold"]
    assert all(weights[link.target, link.source] >= least for link in links["threshold"])


def test_a_shift_reads_another_step() -> None:
    weights = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(shift_weights(weights, 0), weights)
    np.testing.assert_array_equal(shift_weights(weights, 1), weights[[1, 2, 3, 3]])
    np.testing.assert_array_equal(shift_weights(weights, -2), weights[[0, 0, 0, 1]])
    np.testing.assert_array_equal(shift_weights(weights, 9), weights[[3, 3, 3, 3]])
    assert shift_weights(weights[:0], 1).shape == (0, 3)


def test_nothing_is_moved_unless_it_is_asked_for() -> None:
    assert (Extraction().method, Extraction().shift, Extraction().diagonal) == ("argmax", 0, 0.0)


@given(sentences(), st.floats(0.1, 20.0))
def test_the_diagonal_moves_weight_but_loses_none(
    sentence: tuple[FloatArray, list[int], list[int], int, int], strength: float
) -> None:
    weights = word_weights(*sentence)
    moved = near_diagonal(weights, strength)
    np.testing.assert_allclose(moved.sum(axis=1), weights.sum(axis=1))
    np.testing.assert_array_equal(moved[:, -1], weights[:, -1])
    np.testing.assert_array_equal(near_diagonal(weights, 0.0), weights)


def test_the_diagonal_decides_between_equals() -> None:
    weights = np.array([[0.4, 0.0, 0.0, 0.4, 0.2]] * 4)
    assert argmax_links(weights) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert argmax_links(near_diagonal(weights, 4.0)) == [(0, 0), (0, 1), (3, 2), (3, 3)]
    # By hand: at target 0 of 4, source places 1/8 and 7/8 are 0 and 3/4 away.
    ratio = np.exp(-4.0 * 0.75)
    assert near_diagonal(weights, 4.0)[0, 0] == pytest.approx(0.8 / (1 + ratio))
