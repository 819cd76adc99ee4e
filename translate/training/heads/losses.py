"""What heads minimise: cross entropy with links, and disagreement of both heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from translate.alignment.formats import Link

_TINY = 1e-9  # keeps logarithms finite


def link_targets(links: Sequence[Sequence[Link]], sizes: Sequence[tuple[int, int]], null: float) -> Tensor:
    """What the words of a batch's targets should look at: (B, J, I + 1).

    A word looks at all its links alike. One without any looks at no word, the last column, and counts `null`.
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
    """Cross entropy of word probabilities with their links, a word: both (B, J, I + 1)."""
    return -(targets * (words + _TINY).log()).sum() / targets.sum().clamp(min=_TINY)


def agreement_loss(forward: Tensor, backward: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """How unlikely it is that both heads say the same of a word: forward (B, J, I + 1), backward (B, I, J + 1).

    Of target word j that is Σ_i A_ji B_ij, and if it has no link, A_j0 Π_i (1 − B_ij): no source word looks at it. Of
    source words likewise. The mean of −log over all words.
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
