"""Greedy search: always the likeliest next token."""

from __future__ import annotations

from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.ensemble import AnySource, Ensemble
from translate.decoding.hypotheses import Hypothesis, likeliest
from translate.decoding.rules import Rules
from translate.decoding.walk import walk
from translate.models.seq2seq import Seq2Seq


def greedy(
    model: Seq2Seq | Ensemble,
    source: AnySource,
    search: SearchConfig,
    rules: Rules | None = None,
    attention: bool = True,
) -> list[Hypothesis]:
    """One hypothesis for each sentence, with its attention; `search.beam` plays no part. Required words need a beam."""
    return walk(model, source, search, rules, attention, _likeliest)


def _likeliest(log_probs: Tensor, units: Tensor, length: int) -> tuple[Tensor, Tensor]:
    gained, tokens = likeliest(log_probs, 1)  # (N, 1)
    return gained.squeeze(1), tokens.squeeze(1)
