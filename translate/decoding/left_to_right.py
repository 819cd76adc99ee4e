"""Search without a beam, for greedy search and sampling: one hypothesis per row; rows are dropped as they end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.constraints import Constraints
from translate.decoding.hypotheses import (
    Coverage,
    History,
    Hypothesis,
    normalise,
    start_totals,
)
from translate.decoding.search_model import SearchModel, Source, State
from translate.text.tokenizer import BOS, EOS

# (log probabilities (N, V), first index of each row (N,), length) -> the chosen tokens' log probabilities, tokens (N,)
Choose = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@torch.inference_mode()
def left_to_right(
    model: SearchModel[Source, State],
    source: Source,
    search: SearchConfig,
    constraints: Constraints | None,
    attention: bool,
    choose: Choose,
    copies: int = 1,
) -> list[Hypothesis]:
    """`copies` hypotheses for each sentence, next to each other, with their attention if `attention` is True."""
    constraints = constraints or Constraints(source, search)
    assert constraints.required is None, "required words need beam_search"
    source = model.for_search(source, copies)
    units = torch.arange(source.tokens.size(0) * copies, device=source.tokens.device)  # (N,), live rows' first indices
    whole = source if copies == 1 else source.select(units // copies)
    totals = start_totals(whole)  # (N,)
    parents, tokens = units, torch.full_like(units, BOS)
    past = tokens.new_zeros(len(tokens), 0) if constraints.needs_past else None  # (N, length − 1)
    state, history, coverage, length, rows = model.start(whole), History(), Coverage(whole, search), 0, whole
    while len(units):
        length += 1
        log_probs, state, weights = model.advance(tokens, state, rows)
        constraints.apply(log_probs, units // copies, length, past)
        history.record(tokens, parents, totals, weights if attention else None)
        coverage.look(weights)
        gained, tokens = choose(log_probs, units, length)
        totals = totals + gained
        ends = (tokens == EOS).nonzero().squeeze(1)
        if len(ends):
            scores = normalise(totals[ends], length, search) + coverage.penalty(ends, units[ends])
            history.end(units[ends], ends, totals[ends], scores)
        parents = (tokens != EOS).nonzero().squeeze(1)
        if past is not None:
            past = torch.cat([past, tokens.unsqueeze(1)], dim=1)[parents]
        if len(parents) < len(units):
            tokens, totals, units = tokens[parents], totals[parents], units[parents]
            state, rows = state.select(parents), rows.select(parents)
            coverage.select(parents)
    return [only for (only,) in history.best(1, whole.valid)]
