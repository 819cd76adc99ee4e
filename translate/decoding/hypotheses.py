"""Hypotheses, their ranking, and what greedy search, beam search and sampling share.

N is the number of live rows: unfinished hypotheses of all sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.decoding.search_model import SearchSource
from translate.errors import NumericalError
from translate.text.tokenizer import EOS

LEAST_COVERED = 1e-3  # coverage of a position that got no attention: sparse weights can be zero
_NOT_FINITE = "The model's probabilities are not finite numbers. Go back to an earlier checkpoint."
_BLOCK = 64  # tokens in a block of the vocabulary; `likeliest` compares the blocks' maxima first


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence."""

    tokens: tuple[int, ...]  # without <s> and </s>
    log_prob: float  # of all tokens and </s>
    score: float  # what is ranked: the log probability after length normalisation and coverage penalty
    # float32 (len(tokens) + 1, S) over the sentence's own positions, the last row that of </s>; None without attention
    weights: np.ndarray | None = field(compare=False)
    token_log_probs: tuple[float, ...] = field(default=(), compare=False)  # of each token and </s>


def _none(length: Tensor, alpha: float) -> Tensor:
    return torch.ones_like(length)


def _average(length: Tensor, alpha: float) -> Tensor:
    return length


def _wu(length: Tensor, alpha: float) -> Tensor:
    """Wu et al. 2016, eq. 14."""
    return ((5 + length) / 6) ** alpha


# What a log probability is divided by. None of them falls as the length grows: the bound of beam search relies on it.
NORMALIZATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {"none": _none, "average": _average, "wu": _wu}


def normalise(log_prob: Tensor, length: Tensor | int, search: SearchConfig) -> Tensor:
    """The score of hypotheses whose length counts `</s>`, before any coverage penalty."""
    length = torch.as_tensor(length, dtype=log_prob.dtype, device=log_prob.device)
    return log_prob / NORMALIZATIONS[search.normalization](length, search.alpha)


class Coverage:
    """The attention that each live row has given each source piece, and the penalty for pieces that got little.

    Wu et al. 2016, eq. 14: β Σ_s log(min(Σ_t α_ts, 1)), over the pieces without `</s>`. It is at most zero.
    """

    def __init__(self, source: SearchSource, search: SearchConfig) -> None:
        self.weight = search.coverage_penalty
        self.words = source.valid & (source.tokens != EOS)  # (B, S)
        self.looked: Tensor | None = None  # (N, S)

    def look(self, weights: Tensor | None) -> None:
        """Add the weights (N, S) of a step."""
        if self.weight and weights is not None:
            self.looked = weights if self.looked is None else self.looked + weights

    def penalty(self, rows: Tensor, sentences: Tensor) -> Tensor | float:
        """The penalty of hypotheses that continue the given rows (…) of the given sentences (…)."""
        if self.looked is None:
            return 0.0
        missed = self.looked[rows].clamp(LEAST_COVERED, 1.0).log() * self.words[sentences]  # (…, S)
        return self.weight * missed.sum(dim=-1)

    def select(self, rows: Tensor) -> None:
        if self.looked is not None:
            self.looked = self.looked.index_select(0, rows)


def max_lengths(src_lengths: Tensor, search: SearchConfig) -> Tensor:
    """The longest translation of each source (B,); lengths count `</s>` on both sides, the ratio does not."""
    longest = _relative(src_lengths, search.length_ratio, search.length_extra).floor().long()
    if search.max_length:
        longest = longest.clamp(max=search.max_length)
    return longest.to(src_lengths.device)


def min_lengths(src_lengths: Tensor, search: SearchConfig) -> Tensor:
    """The shortest translation of each source (B,), counted as in `max_lengths` and never above it."""
    shortest = _relative(src_lengths, search.min_ratio, 0).ceil().long().clamp(min=max(search.min_length, 1))
    return torch.minimum(shortest.to(src_lengths.device), max_lengths(src_lengths, search))


def _relative(src_lengths: Tensor, ratio: float, extra: int) -> Tensor:
    pieces = (src_lengths.cpu() - 1).clamp(min=0)
    return pieces.double() * ratio + extra  # on the CPU: mps has no float64


def likeliest(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Up to `count` best tokens of each row, best first: log probabilities and tokens (N, min(count, V)).

    Greedy and beam search both choose here, so both break ties the same way. A large vocabulary is first cut into
    blocks: the best tokens lie in the blocks with the best maxima.
    """
    vocabulary = log_probs.size(1)
    blocks = vocabulary // _BLOCK
    if blocks < 2 * count or log_probs.device.type != "cpu":
        return log_probs.topk(min(count, vocabulary), dim=1)
    whole = blocks * _BLOCK
    maxima = log_probs[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(dim=2)  # (N, blocks)
    picks = torch.cat([maxima, log_probs[:, whole:]], dim=1).topk(count, dim=1).indices  # (N, count)
    inside = torch.arange(_BLOCK, device=picks.device)
    alone = (picks >= blocks).unsqueeze(2)  # a token after the last block
    tokens = torch.where(alone, picks.unsqueeze(2) + (whole - blocks), picks.unsqueeze(2) * _BLOCK + inside)
    values = log_probs.gather(1, tokens.flatten(1)).view_as(tokens)  # (N, count, BLOCK)
    best, places = values.masked_fill(alone & (inside > 0), -torch.inf).flatten(1).topk(count, dim=1)
    return best, tokens.flatten(1).gather(1, places)


def start_totals(source: SearchSource) -> Tensor:
    """Log probabilities (B,) of empty hypotheses, in at least float32."""
    dtype = torch.promote_types(source.summary.dtype, torch.float32)
    return source.summary.new_zeros(source.tokens.size(0), dtype=dtype)


class Ended(NamedTuple):
    """Hypotheses that ended, one per row of each tensor."""

    sentences: Tensor
    lengths: Tensor  # counting </s>
    rows: Tensor  # the row of the step that gave </s>
    log_probs: Tensor
    scores: Tensor
    missing: Tensor  # how many tokens of required words they lack


class History:
    """All steps of a search, so that any hypothesis can be traced back from its end."""

    def __init__(self) -> None:
        self.tokens: list[Tensor] = []  # of each step (N,), the inputs of its rows
        self.parents: list[Tensor] = []  # of each step (N,), the rows of the previous step that its rows continue
        self.totals: list[Tensor] = []  # of each step (N,), the log probability of all inputs of its rows so far
        self.weights: list[Tensor] = []  # of each step (N, S), the attention of its rows
        self.ended: list[Ended] = []

    def record(self, tokens: Tensor, parents: Tensor, totals: Tensor, weights: Tensor | None) -> None:
        """Add a step."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.totals.append(totals)
        if weights is not None:
            self.weights.append(weights)

    def end(
        self, sentences: Tensor, rows: Tensor, log_probs: Tensor, scores: Tensor, missing: Tensor | None = None
    ) -> None:
        """Add hypotheses that end: rows of the newest step followed by `</s>`."""
        lengths = torch.full_like(rows, len(self.tokens))
        missing = torch.zeros_like(rows) if missing is None else missing
        self.ended.append(Ended(sentences, lengths, rows, log_probs, scores, missing))

    def best(self, num_best: int, valid: Tensor, most: int | None = None) -> list[list[Hypothesis]]:
        """Up to `num_best` different hypotheses of each sentence, best first; among equal scores, the first to end.

        `most` is the number of candidates to compare where some may be the same.
        """
        if not self.ended:
            raise NumericalError(_NOT_FINITE)
        ended = Ended(*(torch.cat(column) for column in zip(*self.ended, strict=True)))
        order = ended.scores.argsort(descending=True, stable=True)
        order = order[ended.missing[order].argsort(stable=True)]
        order = order[ended.sentences[order].argsort(stable=True)]  # by sentence, then by missing tokens, then by score
        grouped = ended.sentences[order]
        firsts = torch.searchsorted(grouped, grouped)  # the index of its sentence's first
        rank = torch.arange(len(order), device=order.device) - firsts
        missing = ended.missing[order]
        whole = (missing == 0) | (missing[firsts] > 0)  # incomplete ones only where the best is incomplete
        order = order[(rank < (most or num_best)) & whole]
        tokens, totals, weights = self._trace(ended.rows[order], ended.lengths[order])
        found: list[list[Hypothesis]] = [[] for _ in range(valid.size(0))]
        widths = valid.sum(dim=1).tolist()  # padding comes at the end
        columns = (column[order].tolist() for column in (ended.sentences, ended.lengths, ended.log_probs, ended.scores))
        for i, (sentence, length, log_prob, score) in enumerate(zip(*columns, strict=True)):
            if len(found[sentence]) == num_best:
                continue
            words = tuple(tokens[i, 1:length].tolist())
            if most is not None and any(words == one.tokens for one in found[sentence]):
                continue
            seen = None if weights is None else np.ascontiguousarray(weights[i, :length, : widths[sentence]])
            steps = np.diff(totals[i, :length], append=log_prob).tolist()
            found[sentence].append(Hypothesis(words, log_prob, score, seen, tuple(steps)))
        if not all(one and np.isfinite(one[0].log_prob) for one in found):
            raise NumericalError(_NOT_FINITE)
        return found

    def _trace(self, rows: Tensor, lengths: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Trace hypotheses back from the rows that ended them.

        Their inputs (R, T), the log probability up to each step (R, T), their attention (R, T, S).
        """
        shape = (len(rows), len(self.tokens))
        tokens = rows.new_zeros(shape)
        totals = self.totals[0].new_zeros(shape)
        weights = self.weights[0].new_zeros(*shape, self.weights[0].size(1)) if self.weights else None
        for step in reversed(range(len(self.tokens))):
            alive = (lengths > step).nonzero().squeeze(1)
            at = rows[alive]
            tokens[alive, step] = self.tokens[step][at]
            totals[alive, step] = self.totals[step][at]
            if weights is not None:
                weights[alive, step] = self.weights[step][at]
            rows = rows.index_copy(0, alive, self.parents[step][at])
        seen = None if weights is None else weights.float().cpu().numpy()
        return tokens.cpu().numpy(), totals.cpu().double().numpy(), seen
