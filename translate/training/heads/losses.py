"""Losses of heads: cross entropy with links, and disagreement between the two heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from translate.alignment.formats import Link

_TINY = 1e-9  # keeps logarithms finite


def link_targets(links: Sequence[Sequence[Link]], sizes: Sequence[tuple[int, int]], null: float) -> Tensor:
    """Target distributions of the target words of a batch: (B, J, I + 1).

    A word's links get equal shares. A word without links has the target "no word", the last column, with weight `null`.
    """
    most_src, most_tgt = (max(size[side] for size in sizes) for side in (0, 1))
    targets = np.zeros((len(sizes), most_tgt, most_src + 1), np.float32)
    for row, (some, (_, num_tgt)) in enumerate(zip(links, sizes, strict=True)):
        for link in some:
            targets[row, link.target, link.source] = 1.0
        counts = targets[row].sum(axis=1, keepdims=True)  # (J, 1)
        targets[row] /= np.maximum(counts, 1.0)
        targets[row, :num_tgt, -1] = np.where(counts[:num_tgt, 0] > 0, 0.0, null)
    return torch.from_numpy(targets)


def link_loss(words: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of word probabilities with their targets, per word: both (B, J, I + 1)."""
    return -(targets * (words + _TINY).log()).sum() / targets.sum().clamp(min=_TINY)


def agreement_loss(forward: Tensor, backward: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """The mean of −log p(both heads agree on a word) over all words: forward (B, J, I + 1), backward (B, I, J + 1).

    For target word j, p = Σ_i A_ji B_ij + A_j0 Π_i (1 − B_ij), where the second term is that j has no link. Likewise
    for source words.
    """
    ours, theirs = forward[..., :-1], backward[..., :-1].transpose(1, 2)  # (B, J, I) both
    same = ours * theirs
    not_ours, not_theirs = ((-one.clamp(max=1 - 1e-6)).log1p() for one in (ours, theirs))
    of_tgt = same.sum(dim=2) + forward[..., -1] * not_theirs.sum(dim=2).exp()  # (B, J)
    of_src = same.sum(dim=1) + backward[..., -1] * not_ours.sum(dim=1).exp()  # (B, I)
    total = forward.new_zeros(())
    for side, of_words in ((0, of_src), (1, of_tgt)):
        counts = torch.tensor([size[side] for size in sizes], device=forward.device)
        valid = torch.arange(of_words.size(1), device=forward.device) < counts.unsqueeze(1)
        total = total - (of_words + _TINY).log().masked_fill(~valid, 0.0).sum()
    return total / sum(map(sum, sizes))
