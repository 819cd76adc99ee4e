"""A score of one's own, in one file.

translate train CONFIG --plugin examples/euclidean.py model.attention.score=euclidean
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.models.scores import Score, Sizes


class Euclidean(Score):
    """How near a key lies to the query."""

    name = "euclidean"
    formula = "−|q − k|² / √d,  k = W_k m"
    paper = "none: an example of a plugin"
    when = "To see whether distances serve as well as angles."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.key = nn.Linear(sizes.memory, sizes.query, bias=False)  # W_k

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)  # (B, S, H)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        products = torch.matmul(queries, keys.transpose(2, 3))  # (B, G, T, S)
        squares = queries.square().sum(dim=-1, keepdim=True) + keys.square().sum(dim=-1).unsqueeze(2)
        return (2 * products - squares) * keys.size(-1) ** -0.5  # −|q − k|² = 2 q·k − |q|² − |k|²
