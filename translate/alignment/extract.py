"""From the attention weights of pieces to links between words.

Letters beside those of `translate/models`: **I** source words, **J** target words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translate.alignment.formats import FloatArray, Link


def word_weights(
    weights: FloatArray,
    src_words: Sequence[int],
    tgt_words: Sequence[int],
    num_src_words: int,
    num_tgt_words: int,
) -> FloatArray:
    """Sum the source pieces of a word and average its target pieces: (T, S) -> (J, I + 1).

    `src_words` and `tgt_words` give the word of each piece, -1 for `</s>` and pieces outside words. The last column
    collects the weight on source pieces at -1; target pieces at -1 are left out.
    """
    assert weights.shape == (len(tgt_words), len(src_words)), "weights are (T, S)"
    src_members = _membership(src_words, num_src_words)  # (S, I + 1)
    tgt_members = _membership(tgt_words, num_tgt_words)[:, :-1]  # (T, J)
    num_pieces = np.maximum(tgt_members.sum(axis=0), 1.0)  # (J,), 1 where a word has no piece: its row stays zero
    summed: FloatArray = (tgt_members / num_pieces).T @ weights @ src_members  # (J, I + 1)
    return summed


def argmax_links(word_weights: FloatArray) -> list[Link]:
    """Link each target word to the source word of greatest weight (the first of equals), if any: (J, I + 1) -> links.

    A word whose greatest weight is in the last column ("nothing"), or whose row is all zero, gets no link.
    """
    num_src_words = word_weights.shape[1] - 1
    best = word_weights.argmax(axis=1)  # (J,)
    return [Link(int(src), tgt) for tgt, src in enumerate(best) if src < num_src_words and word_weights[tgt, src] > 0.0]


def _membership(words: Sequence[int], num_words: int) -> FloatArray:
    """Mark the word of each piece by a one: pieces -> (pieces, words + 1), the last column for pieces at -1."""
    columns = np.asarray(words, dtype=np.int64)
    assert ((columns >= -1) & (columns < num_words)).all(), "a piece belongs to a word or is at -1"
    members = np.zeros((len(columns), num_words + 1))
    members[np.arange(len(columns)), columns] = 1.0  # -1 is the last column
    return members
