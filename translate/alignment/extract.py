"""From the attention weights of pieces to links between words.

Letters beside those of `translate/models`: **I** source words, **J** target words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from translate.alignment.formats import FloatArray, Link
from translate.defaults import LINK_THRESHOLD


@dataclass(frozen=True)
class Extraction:
    """How links are extracted from the weights."""

    method: str = "argmax"
    threshold: float = LINK_THRESHOLD
    shift: int = 0
    diagonal: float = 0.0

    def links(self, word_weights: FloatArray) -> list[Link]:
        """Extract the links from weights of words (J, I + 1)."""
        return METHODS[self.method](word_weights, self.threshold)


def shift_weights(weights: FloatArray, shift: int) -> FloatArray:
    """Let row t hold the weights of step t + shift; beyond the ends, those of the first or last step: (T, S)."""
    num_steps = len(weights)
    return weights[np.clip(np.arange(num_steps) + shift, 0, max(num_steps - 1, 0))] if num_steps else weights


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


def diagonal_prior(num_tgt: int, num_src: int, strength: float) -> FloatArray:
    """exp(-strength · |i/I - j/J|), with i and j at the middles of words (after Dyer et al. 2013, eq. 2): (J, I)."""
    src_places, tgt_places = (np.arange(num_src) + 0.5) / num_src, (np.arange(num_tgt) + 0.5) / num_tgt
    prior: FloatArray = np.exp(-strength * np.abs(src_places[None, :] - tgt_places[:, None]))
    return prior


def near_diagonal(word_weights: FloatArray, strength: float) -> FloatArray:
    """Multiply by the prior; each row keeps its total weight on words and its weight on no word: (J, I + 1)."""
    num_tgt, num_src = word_weights.shape[0], word_weights.shape[1] - 1
    if not strength or not num_tgt or not num_src:
        return word_weights
    words = word_weights[:, :-1] * diagonal_prior(num_tgt, num_src, strength)
    before, after = word_weights[:, :-1].sum(axis=1, keepdims=True), words.sum(axis=1, keepdims=True)
    scaled = np.divide(words * before, after, out=np.zeros_like(words), where=after > 0)
    return np.concatenate([scaled, word_weights[:, -1:]], axis=1)


def argmax_links(word_weights: FloatArray) -> list[Link]:
    """Link each target word to the source word of greatest weight (the first if equal), if any: (J, I + 1) -> links.

    A word whose greatest weight is in the last column ("no word"), or whose row is all zero, gets no link.
    """
    num_src_words = word_weights.shape[1] - 1
    best = word_weights.argmax(axis=1)  # (J,)
    return [Link(int(src), tgt) for tgt, src in enumerate(best) if src < num_src_words and word_weights[tgt, src] > 0.0]


def threshold_links(word_weights: FloatArray, threshold: float) -> list[Link]:
    """Link each target word to all source words of at least the threshold's weight: (J, I + 1) -> links."""
    places = np.argwhere((word_weights[:, :-1] >= threshold) & (word_weights[:, :-1] > 0.0))
    return [Link(int(src), int(tgt)) for tgt, src in places]


def both_links(word_weights: FloatArray, threshold: float) -> list[Link]:
    """Give the links of both rules: a word's greatest weight, and all weights of at least the threshold."""
    links = {*argmax_links(word_weights), *threshold_links(word_weights, threshold)}
    return sorted(links, key=lambda link: (link.target, link.source))


METHODS: dict[str, Callable[[FloatArray, float], list[Link]]] = {
    "argmax": lambda word_weights, _: argmax_links(word_weights),
    "threshold": threshold_links,
    "both": both_links,
}


def _membership(words: Sequence[int], num_words: int) -> FloatArray:
    """Mark the word of each piece by a one: pieces -> (pieces, words + 1), the last column for pieces at -1."""
    columns = np.asarray(words, dtype=np.int64)
    assert ((columns >= -1) & (columns < num_words)).all(), "a piece belongs to a word or is at -1"
    members = np.zeros((len(columns), num_words + 1))
    members[np.arange(len(columns)), columns] = 1.0  # -1 is the last column
    return members
