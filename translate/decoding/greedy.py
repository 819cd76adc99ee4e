"""Greedy search: always the likeliest next token."""

from __future__ import annotations

import torch

from translate.config import SearchConfig
from translate.decoding.ensemble import AnySource, Ensemble
from translate.decoding.hypotheses import (
    Coverage,
    History,
    Hypothesis,
    advance,
    likeliest,
    normalise,
    start,
    start_totals,
)
from translate.decoding.rules import Rules
from translate.models.seq2seq import Seq2Seq
from translate.text.tokenizer import BOS, EOS


@torch.inference_mode()
def greedy(
    model: Seq2Seq | Ensemble,
    source: AnySource,
    search: SearchConfig,
    rules: Rules | None = None,
    attention: bool = True,
) -> list[Hypothesis]:
    """One hypothesis for each sentence, with its attention; `search.beam` plays no part. Required words need a beam."""
    rules = rules or Rules(source, search)
    source = source.for_steps()
    assert rules.required is None, "beam_search looks for required words"
    totals = start_totals(source)  # (N,), N = B at first
    sentences = torch.arange(len(totals), device=totals.device)  # (N,), the sentence of each live row
    parents, tokens = sentences, torch.full_like(sentences, BOS)
    past = tokens.new_zeros(len(tokens), 0) if rules.needs_past else None  # (N, length − 1)
    state, history, coverage, length, rows = start(model, source), History(), Coverage(source, search), 0, source
    while len(sentences):
        length += 1
        log_probs, state, weights = advance(model, tokens, state, rows)
        rules.apply(log_probs, sentences, length, past)
        history.record(tokens, parents, totals, weights if attention else None)
        coverage.look(weights)
        gained, tokens = (best.squeeze(1) for best in likeliest(log_probs, 1))  # (N,)
        totals = totals + gained
        ends = (tokens == EOS).nonzero().squeeze(1)
        if len(ends):
            scores = normalise(totals[ends], length, search) + coverage.penalty(ends, sentences[ends])
            history.end(sentences[ends], ends, totals[ends], scores)
        parents = (tokens != EOS).nonzero().squeeze(1)
        if past is not None:
            past = torch.cat([past, tokens.unsqueeze(1)], dim=1)[parents]
        if len(parents) < len(sentences):
            tokens, totals, sentences = tokens[parents], totals[parents], sentences[parents]
            state, rows = state.select(parents), rows.select(parents)
            coverage.select(parents)
    return [only for (only,) in history.best(1, source.valid)]
