"""How well a query fits a position of the source.

Every score has `keys`, computed once per sentence, and `forward`, which compares T queries with all of them.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

MOST_ELEMENTS = 1 << 24  # of the (B, T, S, A) tensor of additive attention that exist at once


class Score(nn.Module):
    """Compares queries (B, T, H) with a memory (B, S, D)."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()

    def keys(self, memory: Tensor) -> Tensor:
        """The part that depends on the source alone: (B, S, D) -> (B, S, A)."""
        raise AssertionError("every score defines its keys")

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """query (B, T, H), keys (B, S, A) -> scores (B, T, S)."""
        raise AssertionError("every score defines its comparison")


class Additive(Score):
    """A small network with one hidden layer looks at query and position together."""

    formula = "vᵀ tanh(W q + U m)"
    paper = "Bahdanau et al. 2015, appendix A.1.2"
    when = "The safe choice: robust at any width, the slowest of the scores."

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__(query_width, memory_width, width)
        self.query = nn.Linear(query_width, width, bias=False)
        self.memory = nn.Linear(memory_width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)  # (B, S, A)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        projected = self.query(query)  # (B, T, A)
        rows = max(1, MOST_ELEMENTS // max(1, keys.numel()))
        if rows >= query.size(1):
            return self._compare(projected, keys)  # (B, T, S)
        # Several slices: their hidden layers are computed again in the backward pass instead of being kept.
        slices = [
            checkpoint(self._compare, part, keys, use_reentrant=False, preserve_rng_state=False)
            for part in projected.split(rows, dim=1)
        ]
        return torch.cat(slices, dim=1)  # (B, T, S)

    def _compare(self, projected: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(projected.unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, A)
        return self.v(hidden).squeeze(-1)  # (B, T, S)


class General(Score):
    """A bilinear form between query and memory."""

    formula = "qᵀ W m"
    paper = "Luong et al. 2015, eq. 8"
    when = "Fast and strong; the usual partner of the luong decoder."

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__(query_width, memory_width, width)
        self.w = nn.Linear(memory_width, query_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.w(memory)  # (B, S, H)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2))  # (B, T, S)


class Dot(General):
    """The inner product of the query and a key of its width."""

    formula = "q · k,  k = W_k m"
    paper = "Luong et al. 2015, eq. 8"
    when = "The cheapest; scores grow with the width, so it can saturate in wide models."


class ScaledDot(Dot):
    """The inner product over the root of the width."""

    formula = "q · k / √d,  k = W_k m"
    paper = "Vaswani et al. 2017, eq. 1"
    when = "As dot, and steady in wide models."

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().forward(query, keys) * keys.size(-1) ** -0.5  # (B, T, S)


SCORES: dict[str, type[Score]] = {"additive": Additive, "general": General, "dot": Dot, "scaled_dot": ScaledDot}
