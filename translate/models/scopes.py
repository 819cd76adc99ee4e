"""Scopes: which positions of the source can get attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate.config import AttentionConfig
from translate.kernels import FastLinear
from translate.models.layers import at_least_float32
from translate.models.member import Member

Select = Callable[[Tensor, Tensor], Tensor]  # scores (B, G, T, S) and which positions compete -> weights (B, G, T, S)


class ScopeInputs(NamedTuple):
    """The inputs of a scope besides the scores."""

    query: Tensor  # (B, T, H)
    steps: Tensor  # (B, T), the number of each step, from 0
    valid: Tensor  # (B, S)

    def distances(self, centre: Tensor) -> Tensor:
        """|s − p| for centres p (B, G, T): (B, G, T, S)."""
        sources = torch.arange(self.valid.size(1), device=centre.device, dtype=centre.dtype)
        return (sources - centre.unsqueeze(-1)).abs()

    @property
    def last(self) -> Tensor:
        """n − 1: (B, 1, 1)."""
        return (self.valid.sum(dim=1) - 1).clamp(min=0).view(-1, 1, 1)

    @property
    def competing(self) -> Tensor:
        """(B, 1, 1, S)."""
        return self.valid[:, None, None, :]


class Scope(Member, nn.Module, ABC):
    """Decides which positions compete and lets the selection choose among them."""

    supports: ClassVar[tuple[str, ...]] = ("window",)
    blends: ClassVar[bool] = False
    """Whether it mixes weights of several selections, so that a selection must not take one position only."""

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__()
        self.window = config.window

    @abstractmethod
    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        """scores (B, G, T, S) -> weights (B, G, T, S)."""


class Global(Scope):
    """All positions of the sentence."""

    name = "global"
    formula = "s = 0 … n−1"
    paper = "Luong et al. 2015, section 3.1"
    when = "The choice for sentences; windows help only with long texts."
    supports = ()

    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        return select(scores, inputs.competing)


class LocalMonotonic(Scope):
    """A window that moves one position with each step."""

    name = "local_m"
    formula = "p = min(t, n−1),  |s − p| ≤ w"
    paper = "Luong et al. 2015, section 3.2 (local-m)"
    when = "Languages of similar word order and length; it cannot follow a reordering wider than the window."

    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        centre = torch.minimum(inputs.steps.unsqueeze(1), inputs.last)  # (B, 1, T)
        near = inputs.distances(centre.to(torch.float32)) <= self.window  # (B, 1, T, S)
        return select(scores, inputs.competing & near)


class Predicted(Scope):
    """What scopes with a predicted centre share: p = (n − 1) · sigmoid(vᵀ tanh(W q)), one for each head."""

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.hidden = FastLinear(query_width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.heads, bias=False)

    def centre(self, inputs: ScopeInputs) -> Tensor:
        """(B, heads, T), in at least float32: half precision cannot count positions."""
        where = at_least_float32(self.v(torch.tanh(self.hidden(inputs.query))))  # (B, T, heads)
        return inputs.last * torch.sigmoid(where.transpose(1, 2))

    def local(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        """Weights inside the window, which decrease with the distance from its centre; they sum to at most one."""
        distances = inputs.distances(self.centre(inputs))  # (B, heads, T, S)
        weights = select(scores, inputs.competing & (distances <= self.window))
        return weights * torch.exp(-(distances**2) / (2 * (self.window / 2) ** 2))


class LocalPredicted(Predicted):
    """A window whose centre the query predicts, with weights that fall off as a Gaussian."""

    name = "local_p"
    formula = "p = (n−1) σ(vᵀ tanh(W q)),  α = softmax(score : |s − p| ≤ w) · exp(−(s − p)² / (2 (w/2)²))"
    paper = "Luong et al. 2015, eq. 9-10 (local-p)"
    when = "Long sources; the weights sum to at most one, and a wrong centre is hard to correct."

    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        return self.local(scores, inputs, select)


class Expanded(Predicted):
    """A soft window: outside of it, scores are lowered in proportion to the distance."""

    name = "expanded"
    formula = "α = softmax(score − softplus(λ) · max(0, |s − p| − w)),  p as in local_p"
    paper = "none: local_p with a slope instead of an edge"
    when = "A learned preference for near positions that never excludes a position."

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.slope = nn.Parameter(torch.empty(1))  # λ

    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        outside = (inputs.distances(self.centre(inputs)) - self.window).clamp(min=0.0)  # (B, heads, T, S)
        return select(at_least_float32(scores) - F.softplus(self.slope) * outside, inputs.competing)


class Hybrid(Predicted):
    """All positions and a window, in shares that the query decides."""

    name = "hybrid"
    formula = "α = g · global + (1 − g) · local_p,  g = σ(u · q + b)"
    paper = "none: Luong et al. 2015's two scopes, gated"
    when = "If some words need the whole sentence and others one position."
    blends = True

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.gate = nn.Linear(query_width, 1)

    def forward(self, scores: Tensor, inputs: ScopeInputs, select: Select) -> Tensor:
        share = torch.sigmoid(at_least_float32(self.gate(inputs.query))).unsqueeze(1)  # (B, 1, T, 1)
        return share * select(scores, inputs.competing) + (1 - share) * self.local(scores, inputs, select)


SCOPES: dict[str, type[Scope]] = {
    scope.name: scope for scope in (Global, LocalMonotonic, LocalPredicted, Expanded, Hybrid)
}
