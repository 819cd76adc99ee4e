"""Subword regularisation (Kudo 2018): each epoch draws one of the likeliest segmentations of a sentence.

The choice is a function of (seed, epoch, line, side), by our own generator: sentencepiece's state cannot be restored,
and a resumed run must get the same pieces as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translate.text.tokenizer import Tokenizer


class Spelling:
    """Draws the segmentation of a pair in an epoch."""

    def __init__(
        self, source: Tokenizer, target: Tokenizer, number: int, alpha: float, seed: int, max_length: int
    ) -> None:
        """`max_length` is the limit of training pairs in pieces; longer segmentations are not drawn. 0 is no limit."""
        self.tokenizers = source, target
        self.number, self.alpha, self.seed, self.max_length = number, alpha, seed, max_length

    def __call__(
        self, epoch: int, line: int, src: Sequence[int], tgt: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Another segmentation of the pair."""
        return self._draw(epoch, line, 0, src), self._draw(epoch, line, 1, tgt)

    def _draw(self, epoch: int, line: int, side: int, ids: Sequence[int]) -> Sequence[int]:
        ways, scores = self.tokenizers[side].spellings(ids, self.number)
        if self.max_length:
            short = [place for place, way in enumerate(ways) if len(way) <= self.max_length]
            ways, scores = [ways[place] for place in short], scores[short]
        if len(ways) < 2:
            return ways[0] if ways else ids
        shares = np.exp(self.alpha * (scores - scores.max())).cumsum()
        word = np.random.SeedSequence((self.seed, epoch, line, side)).generate_state(1, np.uint64)[0]
        place = int(np.searchsorted(shares, float(word) / 2**64 * shares[-1], side="right"))
        return ways[min(place, len(ways) - 1)]
