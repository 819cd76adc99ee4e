"""Greedy search: always the likeliest next token."""

from __future__ import annotations

import torch

from translate.config import SearchConfig
from translate.decoding.hypotheses import History, Hypothesis, advance, likeliest, max_lengths, normalise, start_totals
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource
from translate.text.tokenizer import BOS, EOS


@torch.inference_mode()
def greedy(model: Seq2Seq, source: EncodedSource, search: SearchConfig) -> list[Hypothesis]:
    """One hypothesis for each sentence; `search.beam` plays no part."""
    limits = max_lengths(source.valid.sum(dim=1), search)  # (B,)
    totals = start_totals(source)  # (N,), N = B at first
    sentences = torch.arange(len(limits), device=limits.device)  # (N,), the sentence of each live row
    parents, tokens = sentences, torch.full_like(sentences, BOS)
    state, history, length, rows = model.decoder.start(source), History(), 0, source
    while len(sentences):
        length += 1
        log_probs, state, weights = advance(model, tokens, state, rows, limits[sentences] <= length)
        history.record(tokens, parents, weights)
        gained, tokens = (best.squeeze(1) for best in likeliest(log_probs, 1))  # (N,)
        totals = totals + gained
        ends = (tokens == EOS).nonzero().squeeze(1)
        history.end(sentences[ends], ends, totals[ends], normalise(totals[ends], length, search))
        parents = (tokens != EOS).nonzero().squeeze(1)
        if len(parents) < len(sentences):
            tokens, totals, sentences = tokens[parents], totals[parents], sentences[parents]
            state, rows = state.select(parents), rows.select(parents)
    return [only for (only,) in history.best(1, source.valid)]
