"""A table of word translation probabilities, learnt from sentence pairs alone.

Letters beside those of `translate/models`: **I** source words, **J** target words, **N** pairs of words that occur in
the same sentence pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from translate.alignment.extract import diagonal_prior
from translate.alignment.formats import FloatArray

PASSES = 6
DIAGONAL = 4.0  # as in `extract.near_diagonal`
NULL = 0.1  # share of words without a translation, roughly
LEAST = 1e-4  # less likely translations are dropped
BLOCK = 500_000  # pairs of words that are counted at a time

IntArray = NDArray[np.int64]
WordPair = tuple[Sequence[str], Sequence[str]]
"""The words of a source and of its translation."""


@dataclass(frozen=True)
class Lexicon:
    """Translation probabilities of words in both directions, regardless of case."""

    src_ids: Mapping[str, int]
    tgt_ids: Mapping[str, int]
    keys: IntArray  # (N,), ascending
    forward: FloatArray  # (N,), t(y | x) of target word y and source word x
    backward: FloatArray  # (N,), t(x | y)

    def look_up(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """t(y_j | x_i) and t(x_i | y_j): (J, I) both, 0 for pairs of words that are not in the table."""
        columns, rows = _ids(self.src_ids, src), _ids(self.tgt_ids, tgt)  # (I,), (J,)
        wanted = _keys(columns, rows, len(self.tgt_ids))  # (J, I)
        places = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        known = (self.keys[places] == wanted) & (columns >= 0) & (rows >= 0)[:, None]
        return np.where(known, self.forward[places], 0.0), np.where(known, self.backward[places], 0.0)


def learn_lexicon(pairs: Iterable[WordPair], passes: int = PASSES) -> Lexicon:
    """Expectation and maximisation over the links that both directions agree on (after Liang et al. 2006).

    A pass counts two words of a pair as p(i | j) · p(j | i), where p(i | j) ∝ d_ij t(y_j | x_i), d_ij greatest on the
    diagonal. Divided by all counts of x, the counts are the next t(y | x); divided by all counts of y, t(x | y).
    """
    src_ids, tgt_ids = dict[str, int](), dict[str, int]()
    numbered = [(_numbered(src_ids, src), _numbered(tgt_ids, tgt)) for src, tgt in pairs]
    keys, places = _meetings(_keys(src, tgt, len(tgt_ids)) for src, tgt in _blocks(numbered))
    src, tgt = (torch.from_numpy(side) for side in np.divmod(keys, len(tgt_ids)))  # (N,) both
    nulls = NULL / len(tgt_ids), NULL / len(src_ids)
    forward, backward = (torch.full((len(keys),), 1 / len(ids)) for ids in (tgt_ids, src_ids))
    for _ in range(passes):
        counts = torch.zeros(len(keys))
        for block in places:
            flat = block.flatten()
            ours, theirs = (table.index_select(0, flat).view(block.shape) for table in (forward, backward))
            counts.index_add_(0, flat, agreed(ours, theirs, nulls).flatten())
        forward, backward = _shares(counts, src, len(src_ids)), _shares(counts, tgt, len(tgt_ids))
    kept = (torch.maximum(forward, backward) >= LEAST).numpy()
    return Lexicon(src_ids, tgt_ids, keys[kept], forward.numpy()[kept], backward.numpy()[kept])


def agreed(forward: Tensor, backward: Tensor, nulls: tuple[float, float]) -> Tensor:
    """p(i | j) · p(j | i) by t(y_j | x_i) and t(x_i | y_j), all (B, J, I); `nulls` are the weights of "no word"."""
    prior = torch.from_numpy(diagonal_prior(forward.size(1), forward.size(2), DIAGONAL)).to(forward)  # (J, I)
    of_tgt = forward * (prior / prior.sum(dim=1, keepdim=True))  # (B, J, I)
    of_src = backward * (prior / prior.sum(dim=0, keepdim=True))
    of_tgt = of_tgt / (of_tgt.sum(dim=2, keepdim=True) + nulls[0])
    return of_tgt * of_src / (of_src.sum(dim=1, keepdim=True) + nulls[1])


def _shares(counts: Tensor, owners: Tensor, num_owners: int) -> Tensor:
    """Divide the count of each pair by all counts of its owner word: (N,)."""
    totals = torch.zeros(num_owners).index_add_(0, owners, counts)
    return counts / totals.clamp(min=torch.finfo(counts.dtype).tiny)[owners]


def _numbered(ids: dict[str, int], words: Sequence[str]) -> IntArray:
    """The numbers of words, new ones for new words."""
    return np.array([ids.setdefault(word.casefold(), len(ids)) for word in words], np.int64)


def _ids(known: Mapping[str, int], words: Sequence[str]) -> IntArray:
    return np.array([known.get(word.casefold(), -1) for word in words], np.int64)


def _keys(src: IntArray, tgt: IntArray, num_tgt: int) -> IntArray:
    """A number for every word of a source with every word of its target: (…, I), (…, J) -> (…, J, I)."""
    return src[..., None, :] * num_tgt + tgt[..., :, None]


def _meetings(blocks: Iterable[IntArray]) -> tuple[IntArray, list[Tensor]]:
    """All keys of some blocks, ascending, and the index of each block's keys in them: (N,), (B, J, I) each."""
    own_keys, own_places = [], []
    for block in blocks:
        own, inverse = np.unique(block, return_inverse=True)
        own_keys.append(own)
        own_places.append(inverse.astype(np.int32))
    all_keys = np.concatenate(own_keys)
    all_keys.sort()  # np.unique would hash them, which is several times slower
    all_keys = all_keys[np.append(True, all_keys[1:] != all_keys[:-1])]
    for keys, places in zip(own_keys, own_places, strict=True):
        places[:] = np.searchsorted(all_keys, keys)[places]
    return all_keys, [torch.from_numpy(places) for places in own_places]


def _blocks(pairs: Iterable[tuple[IntArray, IntArray]]) -> Iterable[tuple[IntArray, IntArray]]:
    """Stack pairs of the same lengths into blocks of bounded size: (B, I), (B, J); leaves out empty pairs."""
    alike: dict[tuple[int, int], list[tuple[IntArray, IntArray]]] = defaultdict(list)
    for src, tgt in pairs:
        if len(src) and len(tgt):
            alike[len(src), len(tgt)].append((src, tgt))
    for (num_src, num_tgt), some in alike.items():
        size = max(1, BLOCK // (num_src * num_tgt))
        for start in range(0, len(some), size):
            sources, targets = zip(*some[start : start + size], strict=True)
            yield np.stack(sources), np.stack(targets)
