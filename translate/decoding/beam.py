"""Beam search over a batch of sentences: only live hypotheses go through the network, and no loop runs over them."""

from __future__ import annotations

import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.hypotheses import History, Hypothesis, advance, likeliest, max_lengths, normalise, start_totals
from translate.errors import ConfigError
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource
from translate.text.tokenizer import BOS, EOS


@torch.inference_mode()
def beam_search(
    model: Seq2Seq, source: EncodedSource, search: SearchConfig, num_best: int = 1
) -> list[list[Hypothesis]]:
    """Up to `num_best` hypotheses for each sentence, best first.

    Each sentence has K places. A hypothesis that ends keeps its place, so the search grows narrower and a beam of one
    is greedy. A sentence is done when all places are taken, or when nothing still open can reach its best scores.
    """
    beam = search.beam
    assert num_best >= 1
    if num_best > beam:
        raise ConfigError(
            f"search.beam = {beam} finds {beam} translations at most, but the {num_best} best are asked for. "
            f"Raise search.beam (--beam) or lower --nbest."
        )
    limits = max_lengths(source.valid.sum(dim=1), search)  # (B,)
    totals = start_totals(source)  # (N,), N = B at first
    sentences = torch.arange(len(limits), device=limits.device)  # (N,), the sentence of each live row
    places = sentences * beam  # (N,), where each live row stands in the flat (B, K) table, ascending
    free = torch.full_like(sentences, beam)  # (B,), places not taken by hypotheses that ended
    best = totals.new_full((len(limits), num_best), -torch.inf)  # the best scores so far
    parents, tokens = sentences, torch.full_like(sentences, BOS)
    state, history, length, rows = model.decoder.start(source), History(), 0, source
    while len(places):
        length += 1
        log_probs, state, weights = advance(model, tokens, state, rows, limits[sentences] <= length)
        history.record(tokens, parents, weights)
        table_totals, table_tokens, table_parents = _continue(totals, log_probs, places, len(limits), beam)  # (B, K)
        fits = (torch.arange(beam, device=free.device) < free.unsqueeze(1)) & (table_totals > -torch.inf)

        ended = fits & (table_tokens == EOS)
        scores = normalise(table_totals, length, search)
        history.end(ended.nonzero()[:, 0], table_parents[ended], table_totals[ended], scores[ended])
        free = free - ended.sum(dim=1)
        best = torch.cat([best, scores.masked_fill(~ended, -torch.inf)], dim=1).topk(num_best, dim=1).values

        # At best all further tokens are certain, and the longest translation has the greatest divisor.
        goes_on = fits & ~ended
        reach = normalise(table_totals.masked_fill(~goes_on, -torch.inf).amax(dim=1), limits, search)  # (B,)
        goes_on = goes_on & (best[:, -1] < reach).unsqueeze(1)
        places = goes_on.flatten().nonzero().squeeze(1)
        totals, tokens, parents = table_totals[goes_on], table_tokens[goes_on], table_parents[goes_on]
        state = state.select(parents)
        before, sentences = sentences, places // beam
        if not torch.equal(before, sentences):
            rows = source.select(sentences)
    return history.best(num_best, source.valid)


def _continue(
    totals: Tensor, log_probs: Tensor, places: Tensor, num_sentences: int, beam: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The K best continuations of each sentence, best first: total log probabilities, tokens, parent rows, all (B, K).

    Where there are fewer, the total is minus infinity. Of equal ones the one with the better parent comes first.
    """
    gained, tokens = likeliest(log_probs, beam)  # (N, C): no row has more than K among the K best of its sentence
    width = gained.size(1)
    table = totals.new_full((num_sentences * beam, width), -torch.inf)
    table[places] = totals.unsqueeze(1) + gained
    ordered, picks = table.view(num_sentences, -1).sort(dim=1, descending=True, stable=True)  # (B, K·C)
    ordered, picks = ordered[:, :beam], picks[:, :beam]  # (B, K)
    row_at = places.new_zeros(num_sentences * beam)
    row_at[places] = torch.arange(len(places), device=places.device)
    first = torch.arange(num_sentences, device=places.device).unsqueeze(1) * beam  # (B, 1)
    parents = row_at[first + picks // width]
    return ordered, tokens[parents, picks % width], parents
