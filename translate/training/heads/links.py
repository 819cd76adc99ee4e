"""From word weights to links, and from a lexicon to word weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from translate.alignment.extract import near_diagonal
from translate.alignment.formats import FloatArray, Link
from translate.decoding.aligner import AlignSettings
from translate.training.heads.lexicon import Lexicon, WordPair

UNKNOWN = 1e-3  # probability of a translation that is not in the lexicon, and of "no word"
_TINY = 1e-9  # the smallest divisor


def lexical_weights(lexicon: Lexicon, words: Sequence[WordPair]) -> tuple[Tensor, Tensor]:
    """Lexicon probabilities of all word pairs of a batch, in both directions: (B, J, I + 1), (B, I, J + 1)."""
    most_src, most_tgt = (max(len(pair[side]) for pair in words) for side in (0, 1))
    forward = np.full((len(words), most_tgt, most_src + 1), UNKNOWN, np.float32)
    backward = np.full((len(words), most_src, most_tgt + 1), UNKNOWN, np.float32)
    for row, (src, tgt) in enumerate(words):
        of_tgt, of_src = lexicon.look_up(src, tgt)  # (J, I) both
        forward[row, : len(tgt), : len(src)] += of_tgt
        backward[row, : len(src), : len(tgt)] += of_src.T
    return torch.from_numpy(forward), torch.from_numpy(backward)


def links_of(words: FloatArray, sizes: Sequence[tuple[int, int]], settings: AlignSettings) -> list[list[Link]]:
    """Extract links from the word weights of a batch (B, J, I + 1), without each pair's padding."""
    found = []
    for matrix, (num_src, num_tgt) in zip(words, sizes, strict=True):
        own = matrix[:num_tgt][:, [*range(num_src), -1]]
        found.append(settings.extraction.links(near_diagonal(own, settings.extraction.diagonal)))
    return found


def scaled(words: Tensor) -> Tensor:
    """Scale rows to sum to one; rows of zeros stay zero: (B, J, I + 1)."""
    return words / words.sum(dim=2, keepdim=True).clamp(min=_TINY)
