"""Selections: how scores become attention weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.config import AttentionConfig
from translate.models.layers import at_least_float32, masked_softmax
from translate.models.member import Member


class Selection(Member, nn.Module, ABC):
    """Turns scores (B, G, T, S) into weights (B, G, T, S)."""

    supports: ClassVar[tuple[str, ...]] = ("per_feature",)
    takes_one_position: ClassVar[bool] = False
    """Whether one position gets the whole weight, so that weights cannot be blended or trained on given links."""

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        """Weights over the last dimension, zero where not valid; `progress` is the share of training that is done."""

    def loss_terms(self, scores: Tensor, valid: Tensor, weights: Tensor, query: Tensor) -> dict[str, Tensor]:
        """Terms of the loss for the weights that were drawn from these scores: (B, T) each."""
        return {}


class Soft(Selection):
    """Every position gets some weight."""

    name = "soft"
    formula = "α = softmax(score)"
    paper = "Bahdanau et al. 2015, eq. 6"
    when = "Differentiable everywhere: the default."

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        return masked_softmax(scores, valid)


class Sparsemax(Selection):
    """The nearest point of the simplex: positions with low scores get a weight of exactly zero."""

    name = "sparsemax"
    formula = "α = max(score − τ, 0),  τ such that Σ α = 1"
    paper = "Martins and Astudillo 2016"
    when = "Readable alignments: few links, all other weights exactly zero."

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = at_least_float32(scores)
        best = scores.masked_fill(~valid, torch.finfo(scores.dtype).min).amax(dim=-1, keepdim=True)
        # A score 1 below the best or lower gets no weight, so 2 below is safe for positions that are not valid.
        gaps = (scores - best).masked_fill(~valid, -2.0)  # (…, S)
        ordered = gaps.sort(dim=-1, descending=True).values
        sums = ordered.cumsum(dim=-1)
        counts = torch.arange(1, scores.size(-1) + 1, device=scores.device, dtype=scores.dtype)
        support = (1 + counts * ordered > sums).sum(dim=-1, keepdim=True)  # (…, 1), how many get a weight
        support = support.clamp(min=1)  # NaN scores give none; the loss then becomes NaN and is noticed
        threshold = (sums.gather(-1, support - 1) - 1) / support
        return (gaps - threshold).clamp(min=0.0).masked_fill(~valid, 0.0)


def _one_hot_best(scores: Tensor, valid: Tensor) -> Tensor:
    """One where the score is the greatest among the valid, zero elsewhere."""
    lowest = torch.finfo(scores.dtype).min
    best = scores.masked_fill(~valid, lowest).argmax(dim=-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, best, 1.0).masked_fill(~valid, 0.0)


def _with_gumbel_noise(scores: Tensor) -> Tensor:
    """Scores whose greatest is a draw from their softmax (Gumbel 1954)."""
    uniform = torch.rand_like(scores).clamp(min=torch.finfo(scores.dtype).tiny)
    waiting = (-torch.log(uniform)).clamp(min=torch.finfo(scores.dtype).tiny)
    return scores - torch.log(waiting)


class HardGumbel(Selection):
    """One position at a time, drawn in training; the gradient is that of a softmax with falling temperature."""

    name = "hard_gumbel"
    formula = "α = one-hot argmax(score + noise), gradient of softmax((score + noise) / τ); argmax(score) in use"
    paper = "Jang et al. 2017; Maddison et al. 2017"
    when = "Hard links that train almost like soft ones."
    takes_one_position = True

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.start, self.end = math.log(config.temperature), math.log(config.temperature_end)

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = at_least_float32(scores)
        if not self.training:
            return _one_hot_best(scores, valid)
        noisy = _with_gumbel_noise(scores)
        temperature = math.exp(self.start + (self.end - self.start) * min(1.0, progress))
        soft = masked_softmax(noisy / temperature, valid)
        return _one_hot_best(noisy.detach(), valid) + (soft - soft.detach())


class HardReinforce(Selection):
    """One position at a time, drawn in training; the log probability of the words from there on is the reward."""

    name = "hard_reinforce"
    formula = "s ~ softmax(score), ∇ = (R_t − b(q)) ∇ log α_s,  R_t = Σ_{t' ≥ t} log p(y_t'); argmax(score) in use"
    paper = "Xu et al. 2015, section 4.1; Williams 1992"
    when = "An unbiased gradient of a hard choice; it is noisy, so it needs more updates than the others."
    supports = ()
    reasons: ClassVar = {"per_feature": "would draw once for every dimension, but has one reward for all of them"}
    takes_one_position = True

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.baseline = nn.Linear(query_width, 1)

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = at_least_float32(scores.detach())
        return _one_hot_best(_with_gumbel_noise(scores) if self.training else scores, valid)

    def loss_terms(self, scores: Tensor, valid: Tensor, weights: Tensor, query: Tensor) -> dict[str, Tensor]:
        scores = at_least_float32(scores).masked_fill(~valid, torch.finfo(torch.float32).min / 2)
        log_probs = torch.log_softmax(scores, dim=-1)  # (B, G, T, S)
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1)  # (B, G, T)
        return {
            "choice": (weights * log_probs).sum(dim=-1).sum(dim=1),  # (B, T), log probability of what was drawn
            "entropy": entropy.sum(dim=1),
            "baseline": self.baseline(query.detach()).squeeze(-1),
        }


SELECTIONS: dict[str, type[Selection]] = {
    selection.name: selection for selection in (Soft, Sparsemax, HardGumbel, HardReinforce)
}
