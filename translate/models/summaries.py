"""Summaries: the vector of the source from which the decoder's state starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.kernels import FastLinear
from translate.models.layers import masked_softmax
from translate.models.member import Member


class Summary(Member, nn.Module, ABC):
    """Computes one vector (B, D) from memory and final state."""

    reads_memory: ClassVar[bool] = True
    """Whether it is computed from the memory; else from the encoder's final state alone."""
    informs: ClassVar[bool] = True
    """Whether it contains information about the source, which a decoder without attention needs."""

    def __init__(self, width: int) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        """memory (B, S, D), final state (B, D), valid (B, S) -> (B, D)."""


class Last(Summary):
    """The final state of each direction."""

    name = "last"
    formula = "[→h_{n−1}; ←h_0]"
    paper = "Cho et al. 2014; Sutskever et al. 2014"
    when = "The default, and the usual choice for plain."
    reads_memory = False

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return final


class Mean(Summary):
    """The mean over all positions."""

    name = "mean"
    formula = "Σ_s m_s / n"
    paper = "Sennrich et al. 2017 (Nematus)"
    when = "Usual with conditional; gradients have a short path from the decoder to every position."

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return memory.sum(dim=1) / valid.sum(dim=1, keepdim=True).clamp(min=1)


class Pooled(Summary):
    """A learned attention over all positions."""

    name = "attention"
    formula = "Σ_s softmax_s(vᵀ tanh(W m_s)) m_s"
    paper = "Lin et al. 2017"
    when = "If a few words determine what the sentence is about."

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.hidden = FastLinear(width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        scores = self.v(torch.tanh(self.hidden(memory))).squeeze(-1)  # (B, S)
        weights = masked_softmax(scores, valid).to(memory.dtype)  # (B, S)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)  # (B, D)


class Zero(Summary):
    """A vector of zeros: the decoder starts from its bias and reads the source by attention alone."""

    name = "zero"
    formula = "0"
    paper = "none: the control"
    when = "To measure what the summary contributes; refused for plain."
    reads_memory = False
    informs = False

    def forward(self, memory: Tensor, final: Tensor, valid: Tensor) -> Tensor:
        return torch.zeros_like(final)


SUMMARIES: dict[str, type[Summary]] = {summary.name: summary for summary in (Last, Mean, Pooled, Zero)}
