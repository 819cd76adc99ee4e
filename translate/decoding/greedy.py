"""Greedy search: always the likeliest next token."""

from __future__ import annotations

from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.constraints import Constraints
from translate.decoding.hypotheses import Hypothesis, likeliest
from translate.decoding.left_to_right import left_to_right
from translate.decoding.search_model import SearchModel, Source, State


def greedy(
    model: SearchModel[Source, State],
    source: Source,
    search: SearchConfig,
    constraints: Constraints | None = None,
    attention: bool = True,
) -> list[Hypothesis]:
    """One hypothesis for each sentence, with its attention; ignores `search.beam`. Required words need a beam."""
    return left_to_right(model, source, search, constraints, attention, _likeliest)


def _likeliest(log_probs: Tensor, units: Tensor, length: int) -> tuple[Tensor, Tensor]:
    gained, tokens = likeliest(log_probs, 1)  # (N, 1)
    return gained.squeeze(1), tokens.squeeze(1)
