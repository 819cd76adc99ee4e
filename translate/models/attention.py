"""Attention: a score, a scope (which positions compete) and a selection (how scores become weights).

Scores and weights have G groups: one for each head, or with `per_feature` one for each dimension of the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate.config import AttentionConfig
from translate.models.loops import Product, mix
from translate.models.scores import SCORES, Sizes, split_heads
from translate.models.state import EncodedSource, SourceCache

Select = Callable[[Tensor, Tensor], Tensor]  # scores (B, G, T, S) and who competes -> weights (B, G, T, S)


def masked_softmax(scores: Tensor, valid: Tensor) -> Tensor:
    """Softmax over the last dimension in at least float32; exactly zero where not valid, even where nothing is."""
    scores = _at_least_float32(scores)
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~valid, lowest), dim=-1)
    return weights.masked_fill(~valid, 0.0)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


# -- selections: how scores become weights -----------------------------------------------------------------------------


class Selection(nn.Module):
    """Turns scores (B, G, T, S) into weights (B, G, T, S)."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__()

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        """Weights over the last dimension, zero where not valid; `progress` is the share of training that is done."""
        raise AssertionError("every selection defines its weights")

    def notes(self, scores: Tensor, valid: Tensor, weights: Tensor, query: Tensor) -> dict[str, Tensor]:
        """What the loss needs to know of the weights that were drawn from these scores: (B, T) each."""
        return {}


class Soft(Selection):
    """Every position gets a share."""

    formula = "α = softmax(score)"
    paper = "Bahdanau et al. 2015, eq. 6"
    when = "Differentiable everywhere: the default."

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        return masked_softmax(scores, valid)


class Sparsemax(Selection):
    """The nearest point of the simplex: far positions get nothing at all."""

    formula = "α = max(score − τ, 0),  τ such that Σ α = 1"
    paper = "Martins and Astudillo 2016"
    when = "Alignments that are read by people: few links, the rest exactly zero."

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = _at_least_float32(scores)
        best = scores.masked_fill(~valid, torch.finfo(scores.dtype).min).amax(dim=-1, keepdim=True)
        # Whatever lies 1 below the best gets nothing, so 2 below is a safe place for what does not compete.
        gaps = (scores - best).masked_fill(~valid, -2.0)  # (…, S)
        ordered = gaps.sort(dim=-1, descending=True).values
        sums = ordered.cumsum(dim=-1)
        counts = torch.arange(1, scores.size(-1) + 1, device=scores.device, dtype=scores.dtype)
        support = (1 + counts * ordered > sums).sum(dim=-1, keepdim=True)  # (…, 1), how many get a share
        support = support.clamp(min=1)  # of scores that are not numbers nobody does, and the loss will say so
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

    formula = "α = one-hot argmax(score + noise), gradient of softmax((score + noise) / τ); argmax(score) in use"
    paper = "Jang et al. 2017; Maddison et al. 2017"
    when = "Hard links that train almost like soft ones."

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.start, self.end = math.log(config.temperature), math.log(config.temperature_end)

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = _at_least_float32(scores)
        if not self.training:
            return _one_hot_best(scores, valid)
        noisy = _with_gumbel_noise(scores)
        temperature = math.exp(self.start + (self.end - self.start) * min(1.0, progress))
        soft = masked_softmax(noisy / temperature, valid)
        return _one_hot_best(noisy.detach(), valid) + (soft - soft.detach())


class HardReinforce(Selection):
    """One position at a time, drawn in training; what the words that follow are worth is the reward."""

    formula = "s ~ softmax(score), ∇ = (R_t − b(q)) ∇ log α_s,  R_t = Σ_{t' ≥ t} log p(y_t'); argmax(score) in use"
    paper = "Xu et al. 2015, section 4.1; Williams 1992"
    when = "The honest gradient of a hard choice; noisy, so it wants more updates than any other."

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.baseline = nn.Linear(query_width, 1)

    def forward(self, scores: Tensor, valid: Tensor, progress: float) -> Tensor:
        scores = _at_least_float32(scores.detach())
        return _one_hot_best(_with_gumbel_noise(scores) if self.training else scores, valid)

    def notes(self, scores: Tensor, valid: Tensor, weights: Tensor, query: Tensor) -> dict[str, Tensor]:
        scores = _at_least_float32(scores).masked_fill(~valid, torch.finfo(torch.float32).min / 2)
        log_probs = torch.log_softmax(scores, dim=-1)  # (B, G, T, S)
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1)  # (B, G, T)
        return {
            "choice": (weights * log_probs).sum(dim=-1).sum(dim=1),  # (B, T), log probability of what was drawn
            "entropy": entropy.sum(dim=1),
            "baseline": self.baseline(query.detach()).squeeze(-1),
        }


SELECTIONS: dict[str, type[Selection]] = {
    "soft": Soft,
    "sparsemax": Sparsemax,
    "hard_gumbel": HardGumbel,
    "hard_reinforce": HardReinforce,
}


# -- scopes: which positions compete -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a look happens: what a scope may know besides the scores."""

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


class Scope(nn.Module):
    """Decides which positions compete and lets the selection choose among them."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__()
        self.window = config.window

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        """scores (B, G, T, S) -> weights (B, G, T, S)."""
        raise AssertionError("every scope defines its competitors")


class Global(Scope):
    """All positions of the sentence."""

    formula = "s = 0 … n−1"
    paper = "Luong et al. 2015, section 3.1"
    when = "Right for sentences; windows pay for long texts only."

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        return select(scores, place.competing)


class LocalMonotonic(Scope):
    """A window that moves one position with each step."""

    formula = "p = min(t, n−1),  |s − p| ≤ w"
    paper = "Luong et al. 2015, section 3.2 (local-m)"
    when = "Languages of like order and like length; it cannot follow a reordering wider than the window."

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        centre = torch.minimum(place.steps.unsqueeze(1), place.last)  # (B, 1, T)
        near = place.distances(centre.to(torch.float32)) <= self.window  # (B, 1, T, S)
        return select(scores, place.competing & near)


class Predicted(Scope):
    """What scopes with a predicted centre share: p = (n − 1) · sigmoid(vᵀ tanh(W q)), one for each head."""

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.hidden = Product(query_width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.heads, bias=False)

    def centre(self, place: Place) -> Tensor:
        """(B, heads, T), in at least float32: half precision cannot count positions."""
        where = _at_least_float32(self.v(torch.tanh(self.hidden(place.query))))  # (B, T, heads)
        return place.last * torch.sigmoid(where.transpose(1, 2))

    def local(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        """Weights inside the window, less the farther they are from its centre; they sum to at most one."""
        distances = place.distances(self.centre(place))  # (B, heads, T, S)
        weights = select(scores, place.competing & (distances <= self.window))
        return weights * torch.exp(-(distances**2) / (2 * (self.window / 2) ** 2))


class LocalPredicted(Predicted):
    """A window whose centre the query predicts, with a bell over it."""

    formula = "p = (n−1) σ(vᵀ tanh(W q)),  α = softmax(score : |s − p| ≤ w) · exp(−(s − p)² / (2 (w/2)²))"
    paper = "Luong et al. 2015, eq. 9-10 (local-p)"
    when = "Long sources; the weights sum to at most one, and a lost centre is hard to find again."

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        return self.local(scores, place, select)


class Expanded(Predicted):
    """A window without walls: outside of it a score pays for each position of distance."""

    formula = "α = softmax(score − softplus(λ) · max(0, |s − p| − w)),  p as in local_p"
    paper = "none: local_p with a slope instead of an edge"
    when = "A preference for the near that learns its own strength and never loses a position."

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.slope = nn.Parameter(torch.empty(1))  # λ

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        outside = (place.distances(self.centre(place)) - self.window).clamp(min=0.0)  # (B, heads, T, S)
        return select(_at_least_float32(scores) - F.softplus(self.slope) * outside, place.competing)


class Hybrid(Predicted):
    """All positions and a window, in shares that the query decides."""

    formula = "α = g · global + (1 − g) · local_p,  g = σ(u · q + b)"
    paper = "none: Luong et al. 2015's two scopes, gated"
    when = "Where some words want a look around and others a place."

    def __init__(self, config: AttentionConfig, query_width: int) -> None:
        super().__init__(config, query_width)
        self.gate = nn.Linear(query_width, 1)

    def forward(self, scores: Tensor, place: Place, select: Select) -> Tensor:
        share = torch.sigmoid(_at_least_float32(self.gate(place.query))).unsqueeze(1)  # (B, 1, T, 1)
        return share * select(scores, place.competing) + (1 - share) * self.local(scores, place, select)


SCOPES: dict[str, type[Scope]] = {
    "global": Global,
    "local_m": LocalMonotonic,
    "local_p": LocalPredicted,
    "expanded": Expanded,
    "hybrid": Hybrid,
}


# -- the whole ---------------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What attention found."""

    context: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S), the mean over groups, float32
    notes: dict[str, Tensor]  # (B, T) each, for the loss


class Attention(nn.Module):
    """One way of looking at the source."""

    def __init__(self, config: AttentionConfig, query_width: int, memory_width: int, positions: int) -> None:
        super().__init__()
        sizes = Sizes(query_width, memory_width, config.width, config.heads, positions, config.per_feature)
        self.score = SCORES[config.score](sizes)
        self.scope = SCOPES[config.scope](config, query_width)
        self.selection = SELECTIONS[config.selection](config, query_width)
        self.context_width = self.score.value_width
        self.num_groups = self.context_width if config.per_feature else config.heads
        self.hops = nn.ModuleList(
            Product(query_width + self.context_width, query_width) for _ in range(config.hops - 1)
        )
        self.out = Product(self.context_width, self.context_width, bias=False) if config.heads > 1 else None
        # How past looks change a key: k_ts = k_s + w · Σ_{t' < t} α_t's (See et al. 2017, eq. 11, for any score).
        self.covered = nn.Parameter(torch.empty(1, self.score.key_width)) if config.coverage else None

    @property
    def is_one_sum(self) -> bool:
        """Whether the context is one sum over the values and nothing but the decoder reads it."""
        return self.num_groups == 1 and not self.hops

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache:
        """All that depends on the source alone, once per sentence."""
        keys, values = self.score.prepare(memory)
        keys = split_heads(keys, self.score.key_groups).contiguous()  # (B, G, S, A / G)
        return SourceCache(keys, split_heads(values, self.num_groups).contiguous())  # (B, G, S, C / G)

    def forward(self, query: Tensor, steps: Tensor, source: EncodedSource, coverage: Tensor | None = None) -> Look:
        """query (B, T, H), steps (B, T), coverage (B, S) -> what is found: c_t = Σ_s α_ts v_s."""
        assert source.cache is not None, "the source was encoded for a decoder without attention"
        keys = source.cache.keys
        if self.covered is not None:
            assert coverage is not None
            keys = keys + coverage[:, None, :, None] * split_heads(self.covered.unsqueeze(0), keys.size(1))
        notes: dict[str, Tensor] = {}
        context, weights = self._look(query, steps, source, keys, notes)
        for join in self.hops:
            query = torch.tanh(join(torch.cat([query, context], dim=-1)))  # (B, T, H)
            context, weights = self._look(query, steps, source, keys, notes)
        return Look(context, weights, notes)

    def _look(
        self, query: Tensor, steps: Tensor, source: EncodedSource, keys: Tensor, notes: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """One hop; adds to the notes."""
        assert source.cache is not None

        def select(scores: Tensor, competing: Tensor) -> Tensor:
            weights: Tensor = self.selection(scores, competing, source.progress)
            if self.training:
                for name, note in self.selection.notes(scores, competing, weights, query).items():
                    notes[name] = notes[name] + note if name in notes else note
            return weights

        scores = self.score(query, keys)  # (B, G, T, S)
        weights = self.scope(scores, Place(query, steps, source.valid), select)  # (B, G, T, S), float32
        values = source.cache.values if source.cache.read is None else source.cache.read  # (B, G, S, C / G)
        context = mix(weights.to(values.dtype), values)  # (B, G, T, C / G)
        context = context.transpose(1, 2).flatten(2)  # (B, T, C)
        mean = weights.mean(dim=1) if weights.size(1) > 1 else weights.squeeze(1)  # (B, T, S)
        return context if self.out is None else self.out(context), mean
