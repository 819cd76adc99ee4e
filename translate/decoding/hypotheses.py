"""What search finds, how it is ranked, and the step that all ways of searching share.

N is the number of live rows: hypotheses of all sentences that are still being written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from translate.config import SearchConfig
from translate.errors import NumericalError
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, State
from translate.text.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence."""

    tokens: tuple[int, ...]  # without <s> and </s>
    log_prob: float  # of all tokens and </s>
    score: float  # what is ranked: the log probability after length normalisation
    # float32 (len(tokens) + 1, S) over the sentence's own positions, the last row that of </s>; None without attention
    weights: np.ndarray | None = field(compare=False)


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
    """The score of hypotheses whose length counts `</s>`."""
    length = torch.as_tensor(length, dtype=log_prob.dtype, device=log_prob.device)
    return log_prob / NORMALIZATIONS[search.normalization](length, search.alpha)


def max_lengths(src_lengths: Tensor, search: SearchConfig) -> Tensor:
    """The longest translation of each source (B,); lengths count `</s>` on both sides, the ratio looks at pieces."""
    pieces = (src_lengths.cpu() - 1).clamp(min=0)
    longest = pieces.double() * search.length_ratio + search.length_extra  # on the CPU: mps has no float64
    return longest.floor().long().to(src_lengths.device)


def advance(
    model: Seq2Seq, tokens: Tensor, state: State, source: EncodedSource, last: Tensor
) -> tuple[Tensor, State, Tensor | None]:
    """One step of all rows: log probabilities (N, V) of what may follow, the next state, weights (N, S).

    Padding and `<s>` never follow, and where `last` (N,) is True only `</s>` does.
    """
    assert not model.training, "search needs a model in evaluation mode"
    features, state, weights = model.decoder.step(tokens, state, source)
    log_probs = model.decoder.output(features, weights, source)  # (N, V)
    log_probs[:, [PAD, BOS]] = -torch.inf
    forced = last.nonzero().squeeze(1)
    ends = log_probs[forced, EOS]
    log_probs[forced] = -torch.inf
    log_probs[forced, EOS] = ends
    return log_probs, state, weights


def likeliest(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Up to `count` best tokens of each row, best first: log probabilities and tokens (N, min(count, V)).

    Greedy and beam search both choose here, so equal probabilities fall the same way in both.
    """
    return log_probs.topk(min(count, log_probs.size(1)), dim=1)


def start_totals(source: EncodedSource) -> Tensor:
    """Log probabilities (B,) of nothing written yet, in at least float32."""
    dtype = torch.promote_types(source.summary.dtype, torch.float32)
    return source.summary.new_zeros(source.tokens.size(0), dtype=dtype)


class Ended(NamedTuple):
    """Hypotheses that ended, one per row of each tensor."""

    sentences: Tensor
    lengths: Tensor  # counting </s>
    rows: Tensor  # the row of the step that gave </s>
    log_probs: Tensor
    scores: Tensor


class History:
    """All that search has read and seen, so that any hypothesis can be followed back from its end."""

    def __init__(self) -> None:
        self.tokens: list[Tensor] = []  # of each step (N,), what its rows read
        self.parents: list[Tensor] = []  # of each step (N,), the rows of the step before that its rows continue
        self.weights: list[Tensor] = []  # of each step (N, S), where its rows looked
        self.ended: list[Ended] = []

    def record(self, tokens: Tensor, parents: Tensor, weights: Tensor | None) -> None:
        """Add a step."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        if weights is not None:
            self.weights.append(weights)

    def end(self, sentences: Tensor, rows: Tensor, log_probs: Tensor, scores: Tensor) -> None:
        """Add hypotheses to which rows of the newest step gave `</s>`."""
        lengths = torch.full_like(rows, len(self.tokens))
        self.ended.append(Ended(sentences, lengths, rows, log_probs, scores))

    def best(self, num_best: int, valid: Tensor) -> list[list[Hypothesis]]:
        """Up to `num_best` hypotheses of each sentence, best first, of equal ones the one that ended first."""
        ended = Ended(*(torch.cat(column) for column in zip(*self.ended, strict=True)))
        order = ended.scores.argsort(descending=True, stable=True)
        order = order[ended.sentences[order].argsort(stable=True)]  # by sentence, then by score
        grouped = ended.sentences[order]
        rank = torch.arange(len(order), device=order.device) - torch.searchsorted(grouped, grouped)
        order = order[rank < num_best]
        tokens, weights = self._trace(ended.rows[order], ended.lengths[order])
        found: list[list[Hypothesis]] = [[] for _ in range(valid.size(0))]
        own = valid.cpu().numpy()
        columns = (column[order].tolist() for column in ended)
        for i, (sentence, length, _, log_prob, score) in enumerate(zip(*columns, strict=True)):
            seen = None if weights is None else weights[i, :length][:, own[sentence]]
            found[sentence].append(Hypothesis(tuple(tokens[i, 1:length].tolist()), log_prob, score, seen))
        if not all(one and np.isfinite(one[0].log_prob) for one in found):
            raise NumericalError("The model's probabilities are not finite numbers. Go back to an earlier checkpoint.")
        return found

    def _trace(self, rows: Tensor, lengths: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
        """Follow hypotheses back from the rows that ended them: what they read (R, T), where they looked (R, T, S)."""
        shape = (len(rows), len(self.tokens))
        tokens = rows.new_zeros(shape)
        weights = self.weights[0].new_zeros(*shape, self.weights[0].size(1)) if self.weights else None
        for step in reversed(range(len(self.tokens))):
            alive = (lengths > step).nonzero().squeeze(1)
            at = rows[alive]
            tokens[alive, step] = self.tokens[step][at]
            if weights is not None:
                weights[alive, step] = self.weights[step][at]
            rows = rows.index_copy(0, alive, self.parents[step][at])
        return tokens.cpu().numpy(), None if weights is None else weights.float().cpu().numpy()
