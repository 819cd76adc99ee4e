"""Attention: a score, a scope (which positions can get weight) and a selection (how scores become weights).

Scores and weights have G groups: one for each head, or with `per_feature` one for each dimension of the values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from translate import kernels
from translate.config import AttentionConfig
from translate.kernels import FastLinear
from translate.models.scopes import SCOPES, ScopeInputs
from translate.models.scores import SCORES, Sizes, split_heads
from translate.models.selections import SELECTIONS
from translate.models.state import EncodedSource, SourceCache


class AttentionResult(NamedTuple):
    """The result of attention for T queries per sentence."""

    context: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S), the mean over groups, float32
    loss_terms: dict[str, Tensor]  # (B, T) each


class Attention(nn.Module):
    """c_t = Σ_s α_ts v_s with α_t = selection(score(q_t, k_s) for s in scope)   (Bahdanau et al. 2015, eq. 5-6)."""

    def __init__(self, config: AttentionConfig, query_width: int, memory_width: int, positions: int) -> None:
        super().__init__()
        sizes = Sizes(query_width, memory_width, config.width, config.heads, positions, config.per_feature)
        self.score = SCORES[config.score](sizes)
        self.scope = SCOPES[config.scope](config, query_width)
        self.selection = SELECTIONS[config.selection](config, query_width)
        self.context_width = self.score.value_width
        self.num_groups = self.context_width if config.per_feature else config.heads
        self.hops = nn.ModuleList(
            FastLinear(query_width + self.context_width, query_width) for _ in range(config.hops - 1)
        )
        self.out = FastLinear(self.context_width, self.context_width, bias=False) if config.heads > 1 else None
        # How past weights change a key: k_ts = k_s + w · Σ_{t' < t} α_t's (See et al. 2017, eq. 11, for any score).
        self.covered = nn.Parameter(torch.empty(1, self.score.key_width)) if config.coverage else None

    @property
    def is_one_sum(self) -> bool:
        """Whether the context is one weighted sum of the values, so that W Σ α v = Σ α (W v)."""
        return self.num_groups == 1 and not self.hops

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache:
        """Keys and values, which depend on the source alone: once per sentence."""
        keys, values = self.score.prepare(memory)
        keys = split_heads(keys, self.score.key_groups).contiguous()  # (B, G, S, A / G)
        return SourceCache(keys, split_heads(values, self.num_groups).contiguous())  # (B, G, S, C / G)

    def forward(
        self, query: Tensor, steps: Tensor, source: EncodedSource, coverage: Tensor | None = None
    ) -> AttentionResult:
        """query (B, T, H), steps (B, T) from 0, coverage (B, S)."""
        assert source.cache is not None, "the source was encoded for a decoder without attention"
        weights, loss_terms = self.weigh(query, steps, source, coverage)
        context = self._context(weights, source.cache.values)  # (B, T, C)
        for join in self.hops:  # the context changes the query of the next hop (Sukhbaatar et al. 2015)
            query = torch.tanh(join(torch.cat([query, context], dim=-1)))  # (B, T, H)
            weights, more = self.weigh(query, steps, source, coverage)
            context = self._context(weights, source.cache.values)
            loss_terms = {name: loss_terms[name] + term for name, term in more.items()}
        mean = weights.mean(dim=1) if weights.size(1) > 1 else weights.squeeze(1)  # (B, T, S)
        return AttentionResult(context, mean, loss_terms)

    def weigh(
        self, query: Tensor, steps: Tensor, source: EncodedSource, coverage: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weights α (B, G, T, S) in float32, and the selection's loss terms."""
        assert source.cache is not None, "the source was encoded for a decoder without attention"
        loss_terms: dict[str, Tensor] = {}

        def select(scores: Tensor, competing: Tensor) -> Tensor:
            weights: Tensor = self.selection(scores, competing, source.progress)
            if self.training:
                loss_terms.update(self.selection.loss_terms(scores, competing, weights, query))
            return weights

        scores = self.score(query, self._keys(source.cache.keys, coverage))  # (B, G, T, S)
        weights: Tensor = self.scope(scores, ScopeInputs(query, steps, source.valid), select)
        return weights, loss_terms

    def _keys(self, keys: Tensor, coverage: Tensor | None) -> Tensor:
        """Keys (B, G, S, A / G) with the weights so far (B, S) added."""
        if self.covered is None:
            return keys
        assert coverage is not None
        return keys + coverage[:, None, :, None] * split_heads(self.covered.unsqueeze(0), keys.size(1))

    def _context(self, weights: Tensor, values: Tensor) -> Tensor:
        """weights (B, G, T, S), values (B, G, S, C / G) -> (B, T, C); heads are concatenated and mixed."""
        context = kernels.weighted_sum(weights.to(values.dtype), values)  # (B, G, T, C / G)
        context = context.transpose(1, 2).flatten(2)  # (B, T, C)
        return context if self.out is None else self.out(context)
