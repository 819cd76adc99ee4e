"""Beam search over a batch of sentences: only live hypotheses go through the network, and no loop runs over them."""

from __future__ import annotations

import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.constraints import Constraints, Required
from translate.decoding.hypotheses import (
    Coverage,
    History,
    Hypothesis,
    likeliest,
    normalise,
    start_totals,
)
from translate.decoding.search_model import SearchModel, Source, State
from translate.text.tokenizer import BOS, EOS


# Longer than 60 lines, because it is one loop in the order of its steps; its parts would share ten variables.
@torch.inference_mode()
def beam_search(
    model: SearchModel[Source, State],
    source: Source,
    search: SearchConfig,
    num_best: int = 1,
    constraints: Constraints | None = None,
    attention: bool = True,
) -> list[list[Hypothesis]]:
    """Up to `num_best` hypotheses for each sentence, best first, with their attention.

    Each sentence has K places. A hypothesis that ends keeps its place, so the search grows narrower and a beam of one
    is greedy. `search.stop` says when a sentence is done: with `full`, when all places are taken by ended hypotheses;
    with `exact`, when no open hypothesis can reach the best scores any more, which gives the same result.
    """
    constraints = constraints or Constraints(source, search)
    source = model.for_search(source, search.beam)
    assert 1 <= num_best <= search.beam, "the translator checks it"
    beam, groups, required = search.beam, search.groups, constraints.required
    size = beam // groups  # places of a group
    num_sentences, device = source.tokens.size(0), source.tokens.device
    units = torch.arange(num_sentences * groups, device=device)  # a sentence has one for each group
    sentences = units // groups  # (N,), the sentence of each live row
    places = units * size  # (N,), where each live row stands in the flat (B, K) table, ascending
    free = torch.full_like(units, size).view(num_sentences, groups)  # places not taken by hypotheses that ended
    totals = start_totals(source)[sentences]  # (N,), N = B · groups at first
    best = totals.new_full((num_sentences, num_best), -torch.inf)  # the best scores so far
    parents, tokens = units, torch.full_like(units, BOS)
    past = tokens.new_zeros(len(tokens), 0) if constraints.needs_past else None  # (N, length − 1)
    rows = source if groups == 1 else source.select(sentences)
    state, history, coverage, length = model.start(rows), History(), Coverage(source, search), 0
    seats = torch.arange(size, device=device)
    while len(places):
        length += 1
        log_probs, state, weights = model.advance(tokens, state, rows)
        constraints.apply(log_probs, sentences, length, past, None if required is None else required.closed)
        history.record(tokens, parents, totals, weights if attention else None)
        coverage.look(weights)
        table = _Table(totals, log_probs, places, num_sentences, search, required)
        table_totals, table_tokens, table_parents, missing = table.choose(free)  # (B, K) each
        fits = (seats < free.unsqueeze(2)).view(num_sentences, beam) & (table_totals > -torch.inf)

        ended = fits & (table_tokens == EOS)
        whose, _ = ended.nonzero(as_tuple=True)  # (R,)
        if len(whose):
            ending = table_parents[ended]
            scores = normalise(table_totals[ended], length, search) + coverage.penalty(ending, whose)  # (R,)
            lacks = None if missing is None else missing[ended]
            history.end(whose, ending, table_totals[ended], scores, lacks)
            free = free - ended.view(num_sentences, groups, size).sum(dim=2)
            ranked = scores if lacks is None else scores.masked_fill(lacks > 0, -torch.inf)
            found = torch.full_like(table_totals, -torch.inf).masked_scatter(ended, ranked)  # (B, K)
            best = torch.cat([best, found], dim=1).topk(num_best, dim=1).values

        goes_on = fits & ~ended
        goes_on = goes_on & _open(table_totals, goes_on, best, constraints.longest, search).unsqueeze(1)
        places = goes_on.flatten().nonzero().squeeze(1)
        totals, tokens, parents = table_totals[goes_on], table_tokens[goes_on], table_parents[goes_on]
        state = state.select(parents)
        coverage.select(parents)
        if past is not None:
            past = torch.cat([past[parents], tokens.unsqueeze(1)], dim=1)
        if required is not None:
            required.follow(parents, tokens)
        before, sentences = sentences, places // beam
        if len(sentences) and not torch.equal(before, sentences):
            rows = model.for_hypotheses(source, sentences)
    return history.best(num_best, source.valid, most=beam if groups > 1 else None)


def _open(totals: Tensor, goes_on: Tensor, best: Tensor, longest: Tensor, search: SearchConfig) -> Tensor:
    """Which sentences (B,) are not done, given their open hypotheses (B, K)."""
    if search.stop == "full" or (search.groups > 1 and best.size(1) > 1):
        return torch.ones_like(goes_on[:, 0])  # several groups may find the same hypothesis
    if search.stop == "first":
        return best[:, -1] == -torch.inf
    assert search.stop == "exact"
    # The upper bound: all further tokens have probability 1, all of the source is covered, and the divisor is that of
    # the longest translation, the greatest.
    reach = normalise(totals.masked_fill(~goes_on, -torch.inf).amax(dim=1), longest, search)  # (B,)
    return best[:, -1] < reach


class _Table:
    """All continuations of all live rows that can be among the K best of their sentences."""

    def __init__(
        self,
        totals: Tensor,
        log_probs: Tensor,
        places: Tensor,
        num_sentences: int,
        search: SearchConfig,
        required: Required | None,
    ) -> None:
        self.beam, self.groups, self.diversity = search.beam, search.groups, search.diversity
        self.num_sentences, self.required = num_sentences, required
        # (N, C): no row has more than K among the K best of its sentence. K are enough with groups too: earlier groups
        # penalise at most K tokens less the group's own places.
        gained, tokens = likeliest(log_probs, self.beam)
        if required is not None:
            gained, tokens = _with_required(gained, tokens, log_probs, required)
        self.width = gained.size(1)
        self.tokens = tokens
        table = totals.new_full((num_sentences * self.beam, self.width), -torch.inf)
        table[places] = totals.unsqueeze(1) + gained
        self.totals = table
        self.row_at = places.new_zeros(num_sentences * self.beam)
        self.row_at[places] = torch.arange(len(places), device=places.device)
        self.first = torch.arange(num_sentences, device=places.device).unsqueeze(1) * self.beam  # (B, 1)

    def choose(self, free: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Total log probabilities, tokens, parent rows and what is missing of required words, all (B, K), best first.

        Where there are fewer, the total is minus infinity. Among equal totals the better parent comes first.
        """
        if self.groups > 1:
            return *self._choose_by_group(free), None
        flat = self.totals.view(self.num_sentences, -1)  # (B, K·C)
        if self.required is not None:
            _, all_tokens, all_parents = self._at(0, torch.arange(flat.size(1), device=flat.device).expand_as(flat))
            banks, missing = self.required.written(all_parents, all_tokens)  # (B, K·C) each
            picks = self.required.order(flat, banks)[:, : self.beam]
            return *self._at(0, picks), missing.gather(1, picks)
        picks = flat.sort(dim=1, descending=True, stable=True).indices[:, : self.beam]
        return *self._at(0, picks), None

    def _at(self, place: int, picks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Totals, tokens and parents (B, P) of picks (B, P), which count from the given place of each sentence."""
        picks = picks + place * self.width
        totals = self.totals.view(self.num_sentences, -1).gather(1, picks)
        parents = self.row_at[self.first + picks // self.width]
        return totals, self.tokens[parents, picks % self.width], parents

    def _choose_by_group(self, free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vijayakumar et al. 2018, algorithm 1, with Hamming diversity: one group after the other."""
        size = self.beam // self.groups
        flat = self.totals.view(self.num_sentences, self.groups, -1)  # (B, G, size·C)
        seats = torch.arange(size, device=free.device)
        everything = torch.arange(flat.size(2), device=free.device).expand(self.num_sentences, -1)
        columns: list[tuple[Tensor, Tensor, Tensor]] = []
        chosen = self.tokens.new_zeros(self.num_sentences, 0)  # (B, …), what earlier groups have taken
        for group in range(self.groups):
            totals, tokens, _ = self._at(group * size, everything)
            times = (tokens.unsqueeze(2) == chosen.unsqueeze(1)).sum(dim=2)  # (B, size·C)
            keys = totals - self.diversity * times
            picks = keys.sort(dim=1, descending=True, stable=True).indices[:, :size]
            columns.append(self._at(group * size, picks))
            fits = (seats < free[:, group : group + 1]) & (columns[-1][0] > -torch.inf)
            chosen = torch.cat([chosen, columns[-1][1].masked_fill(~fits, -1)], dim=1)
        totals, tokens, parents = (torch.cat(parts, dim=1) for parts in zip(*columns, strict=True))
        return totals, tokens, parents


def _with_required(gained: Tensor, tokens: Tensor, log_probs: Tensor, required: Required) -> tuple[Tensor, Tensor]:
    """Add the tokens that continue required words, each once."""
    extra = required.candidates()  # (N, M)
    both = torch.cat([tokens, extra], dim=1)  # (N, C + M)
    same = both.unsqueeze(2) == extra.unsqueeze(1)  # (N, C + M, M)
    order = torch.arange(both.size(1), device=both.device)
    before = order.unsqueeze(1) < order[tokens.size(1) :].unsqueeze(0)  # (C + M, M)
    repeated = (same & before).any(dim=1)  # (N, M)
    values = log_probs.gather(1, extra.clamp(min=0)).masked_fill(repeated | (extra < 0), -torch.inf)
    return torch.cat([gained, values], dim=1), torch.cat([tokens, extra.clamp(min=0)], dim=1)
