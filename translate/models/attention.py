"""Attention: a score, a scope (which positions compete) and a selection (how scores become weights)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.config import AttentionConfig
from translate.models.scores import SCORES
from translate.models.state import EncodedSource, SourceCache


def masked_softmax(scores: Tensor, valid: Tensor) -> Tensor:
    """Softmax over the last dimension in at least float32; exactly zero where not valid, even where nothing is."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~valid, lowest), dim=-1)
    return weights.masked_fill(~valid, 0.0)


class Selection(nn.Module):
    """Turns scores (B, T, S) into weights (B, T, S)."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def forward(self, scores: Tensor, valid: Tensor) -> Tensor:
        raise AssertionError("every selection defines its weights")


class Soft(Selection):
    """Every position gets a share."""

    formula = "α = softmax(score)"
    paper = "Bahdanau et al. 2015, eq. 6"
    when = "Differentiable everywhere: the default."

    def forward(self, scores: Tensor, valid: Tensor) -> Tensor:
        return masked_softmax(scores, valid)


class Scope(nn.Module):
    """Decides which positions compete and lets the selection choose among them."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def forward(self, scores: Tensor, valid: Tensor, selection: Selection) -> Tensor:
        raise AssertionError("every scope defines its competitors")


class Global(Scope):
    """All positions of the sentence."""

    formula = "s = 0 … n−1"
    paper = "Luong et al. 2015, section 3.1"
    when = "Right for sentences; windows pay for long texts only."

    def forward(self, scores: Tensor, valid: Tensor, selection: Selection) -> Tensor:
        return selection(scores, valid.unsqueeze(1))  # (B, T, S)


SCOPES: dict[str, type[Scope]] = {"global": Global}
SELECTIONS: dict[str, type[Selection]] = {"soft": Soft}


class Attention(nn.Module):
    """One way of looking at the source."""

    def __init__(self, config: AttentionConfig, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.score = SCORES[config.score](query_width, memory_width, config.width)
        self.scope = SCOPES[config.scope]()
        self.selection = SELECTIONS[config.selection]()

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache:
        """All that depends on the source alone, once per sentence."""
        return SourceCache(keys=self.score.keys(memory), values=memory)

    def forward(self, query: Tensor, source: EncodedSource) -> tuple[Tensor, Tensor]:
        """query (B, T, H) -> context (B, T, D), weights (B, T, S): c_t = Σ_s α_ts m_s."""
        assert source.cache is not None, "the source was encoded for a decoder without attention"
        scores = self.score(query, source.cache.keys)  # (B, T, S)
        weights = self.scope(scores, source.valid, self.selection)  # (B, T, S), float32
        values = source.cache.values  # (B, S, D)
        return torch.bmm(weights.to(values.dtype), values), weights
