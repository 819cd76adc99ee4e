"""The encoded source for the steps of a recurrent decoder; the only user of W Σ_s α_s v_s = Σ_s α_s (W v_s).

A decoder names two matrices that it applies to the context: one in its recurrence, one in its readout. Either may be
applied after the weighted sum, step by step, or before it to the values, once for a sentence. A view decides which:

              recurrence's matrix   readout's matrix
PlainView     after the sum         after the sum             any attention
TrainingView  before the loop       after it, for all steps   large products for many small ones
SearchView    before the search     before the search         once for all steps and hypotheses of a sentence

A test holds all three equal for every member.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from translate import kernels
from translate.kernels import FastLinear
from translate.models.attention import Attention
from translate.models.state import EncodedSource, RecurrentState


class ContextMatrices(NamedTuple):
    """The matrices that a decoder applies to the context, without biases; None for a part that reads c_t itself.

    If one of them is None, only the plain view is used.
    """

    recurrence: FastLinear | None
    readout: FastLinear | None


class Attended(NamedTuple):
    """The result of attention for a step."""

    weights: Tensor  # α_t, (B, S), float32
    to_recurrence: Tensor  # C c_t, (B, R), with C the recurrence's matrix; c_t if it has none
    to_readout: Tensor | None  # C_o c_t, (B, F), with C_o the readout's; None if it is formed after the loop
    loss_terms: dict[str, Tensor]  # (B,) each


class SourceView(ABC):
    """A batch of encoded sources that the steps of a decoder attend to."""

    def __init__(self, attention: Attention | None, matrices: ContextMatrices, source: EncodedSource) -> None:
        self._attention, self.matrices, self.source = attention, matrices, source

    @property
    def attention(self) -> Attention:
        assert self._attention is not None, "a decoder without attention does not attend"
        return self._attention

    @property
    def summary(self) -> Tensor:
        """The vector (B, D) that started the decoder."""
        return self.source.summary

    def attend(self, query: Tensor, state: RecurrentState) -> Attended:
        """One query for each row: (B, H)."""
        sharing, coverage = self.source.sharing, state.coverage
        by_sentence = _one_row_each if sharing is None else sharing.spread  # (B, …) -> (B, K, …)
        by_row = _only_row if sharing is None else sharing.gather  # (B, K, …) -> (B, …)
        found = self._attend(by_sentence(query), by_sentence(state.position), coverage)
        weights, loss_terms = by_row(found.weights), {name: by_row(term) for name, term in found.loss_terms.items()}
        if coverage is not None and self.attention.training:
            loss_terms["coverage"] = torch.minimum(weights, coverage).sum(dim=-1)  # (B,), See et al. 2017, eq. 12
        to_readout = None if found.to_readout is None else by_row(found.to_readout)
        return Attended(weights, by_row(found.to_recurrence), to_readout, loss_terms)

    @abstractmethod
    def _attend(self, query: Tensor, steps: Tensor, coverage: Tensor | None) -> Attended:
        """K queries for each sentence: query (B, K, H), steps (B, K) -> all of (B, K, …)."""

    def readout_contexts(self, weights: Tensor) -> Tensor:
        """The readout's matrix applied to the contexts of all steps: weights (B, T, S) -> (B, T, F)."""
        raise AssertionError("a view whose `to_readout` is None defines it")


def _one_row_each(rows: Tensor) -> Tensor:
    return rows.unsqueeze(1)


def _only_row(table: Tensor) -> Tensor:
    return table.squeeze(1)


class PlainView(SourceView):
    """Both matrices are applied to the context of each step."""

    def _attend(self, query: Tensor, steps: Tensor, coverage: Tensor | None) -> Attended:
        context, weights, loss_terms = self.attention(query, steps, self.source, coverage)  # (B, K, C)
        recurrence, readout = self.matrices
        to_recurrence = context if recurrence is None else recurrence.without_bias(context)
        to_readout = context if readout is None else readout.without_bias(context)
        return Attended(weights, to_recurrence, to_readout, loss_terms)


class TrainingView(SourceView):
    """The recurrence's matrix is applied to the values before the loop, the readout's after it."""

    def __init__(self, attention: Attention | None, matrices: ContextMatrices, source: EncodedSource) -> None:
        super().__init__(attention, matrices, source)
        assert source.cache is not None
        assert matrices.recurrence is not None
        self.values = source.cache.values  # (B, 1, S, C)
        self.projected = matrices.recurrence.without_bias(self.values)  # (B, 1, S, R)

    def _attend(self, query: Tensor, steps: Tensor, coverage: Tensor | None) -> Attended:
        weights, loss_terms = self.attention.weigh(query, steps, self.source, coverage)  # (B, 1, 1, S)
        to_recurrence = kernels.weighted_sum(weights.to(self.projected.dtype), self.projected)  # (B, 1, 1, R)
        return Attended(weights.squeeze(1), to_recurrence.squeeze(1), None, loss_terms)

    def readout_contexts(self, weights: Tensor) -> Tensor:
        assert self.matrices.readout is not None
        projected = self.matrices.readout.without_bias(self.values.squeeze(1))  # (B, S, F)
        return torch.bmm(weights.to(projected.dtype), projected)


class SearchView(SourceView):
    """Both matrices have been applied to the values, once per sentence."""

    @staticmethod
    def prepare(matrices: ContextMatrices, source: EncodedSource) -> EncodedSource:
        """The source with the products of both matrices and the values, in place of the values."""
        assert source.cache is not None
        assert matrices.recurrence is not None
        assert matrices.readout is not None
        values = source.cache.values  # (B, 1, S, C)
        flat = values.flatten(0, 2)  # (B · S, C): otherwise torch would multiply sentence by sentence
        both = torch.cat([matrices.recurrence.without_bias(flat), matrices.readout.without_bias(flat)], dim=-1)
        projected = both.view(*values.shape[:3], -1)  # (B, 1, S, R + F)
        return replace(source, cache=replace(source.cache, values=values[..., :0], projected_values=projected))

    def _attend(self, query: Tensor, steps: Tensor, coverage: Tensor | None) -> Attended:
        assert self.source.cache is not None
        assert self.matrices.recurrence is not None
        projected, width = self.source.cache.projected_values, self.matrices.recurrence.out_features
        assert projected is not None
        weights, loss_terms = self.attention.weigh(query, steps, self.source, coverage)  # (B, 1, K, S)
        both = kernels.weighted_sum(weights.to(projected.dtype), projected).squeeze(1)  # (B, K, R + F)
        return Attended(weights.squeeze(1), both[..., :width], both[..., width:], loss_terms)
