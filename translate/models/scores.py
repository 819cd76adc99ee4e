"""Scores: how well a query fits a position of the source.

A score has three parts: `keys`, computed once per sentence; `queries`, computed once per query; and `compare`, which
compares every query with every key. Keys and queries are cut into G groups (heads) before they are compared. A new
score is a class like those below, here with its entry in `SCORES` or in a file for `--plugin` (docs/extending.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translate import kernels
from translate.kernels import FastLinear
from translate.models.member import Member


@dataclass(frozen=True)
class Sizes:
    """The sizes of a score."""

    query: int  # H
    memory: int  # D
    width: int  # A, where the formula leaves it free
    heads: int
    positions: int  # the longest source, end symbol included
    per_feature: bool  # one score for each dimension of the values instead of one for each head


class Score(Member, nn.Module, ABC):
    """Compares queries (B, T, H) with a memory (B, S, D)."""

    supports: ClassVar[tuple[str, ...]] = ("heads", "hops")  # of heads, hops, per_feature
    width_divided_by_heads: ClassVar[tuple[str, ...]] = ("encoder.output_width", "decoder.width")
    """Widths that are divided among heads: that of the values, and that of queries and keys, here the query's."""
    needs_max_length: ClassVar[bool] = False
    """Whether it has weights for each position, so that the longest source must be known."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.key_groups = sizes.heads  # into how many groups keys and queries are cut
        self.key_width = sizes.query  # A
        self.value_width = self._value_width(sizes)  # C

    def _value_width(self, sizes: Sizes) -> int:
        return sizes.memory

    def prepare(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, S, A) and values (B, S, C) of a memory."""
        return self.keys(memory), memory

    @abstractmethod
    def keys(self, memory: Tensor) -> Tensor:
        """The part that depends on the source alone: (B, S, D) -> (B, S, A)."""

    def queries(self, query: Tensor) -> Tensor:
        """The part that depends on the query alone: (B, T, H) -> (B, T, A)."""
        return query

    @abstractmethod
    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries (B, G, T, A / G), keys (B, G, S, A / G) -> scores (B, G, T, S)."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """query (B, T, H), keys (B, G, S, A / G) -> scores (B, G, T, S)."""
        return self.compare(split_heads(self.queries(query), keys.size(1)), keys)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(B, T, G · A) -> (B, G, T, A)."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


class ElementwiseScore(Score):
    """A score that is a sum over hidden units; with `per_feature`, a matrix gives one score for each feature."""

    supports = ("heads", "hops", "per_feature")

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.mix = nn.Linear(self._unit_width(sizes), self.value_width, bias=False) if sizes.per_feature else None

    def _unit_width(self, sizes: Sizes) -> int:
        return sizes.query

    @abstractmethod
    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries (B, G, T, A / G), keys (B, G, S, A / G) -> hidden units (B, G, T, S, A / G)."""

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The sum of the units (B, G, T, S), for a score without a faster way to compute it."""
        return kernels.in_slices(lambda some, all_keys: self.units(some, all_keys).sum(dim=-1), queries, keys)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.total(queries, keys) if self.mix is None else kernels.in_slices(self._mixed, queries, keys)

    def _mixed(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Choi et al. 2018: a score for each feature, (B, 1, T, S, A) -> (B, C, T, S)."""
        assert self.mix is not None
        return self.mix(self.units(queries, keys)).squeeze(1).permute(0, 3, 1, 2)


class Additive(ElementwiseScore):
    """A network with one hidden layer that reads query and position together."""

    name = "additive"
    formula = "vᵀ tanh(W q + U m)"
    paper = "Bahdanau et al. 2015, appendix A.1.2"
    when = "The safe choice: robust at any width, the slowest of the scores."
    width_divided_by_heads = ("encoder.output_width", "attention.width")

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.key_width = sizes.width
        self.query = FastLinear(sizes.query, sizes.width, bias=False)  # W
        self.memory = FastLinear(sizes.memory, sizes.width)  # U
        if not sizes.per_feature:
            self.v = nn.Parameter(torch.empty(sizes.heads, sizes.width // sizes.heads))

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)  # U m, (B, S, A)

    def queries(self, query: Tensor) -> Tensor:
        return self.query(query)  # W q, (B, T, A)

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(queries.unsqueeze(3) + keys.unsqueeze(2))  # tanh(W q + U m), (B, G, T, S, A / G)

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return kernels.additive_score(queries, keys, self.v)  # vᵀ tanh(W q + U m), (B, G, T, S)

    def _unit_width(self, sizes: Sizes) -> int:
        return sizes.width


class General(ElementwiseScore):
    """A bilinear form between query and memory."""

    name = "general"
    formula = "qᵀ W m"
    paper = "Luong et al. 2015, eq. 8"
    when = "Fast and strong; the usual partner of the luong decoder."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.w = FastLinear(sizes.memory, sizes.query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.w(memory)  # (B, S, H)

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries.unsqueeze(3) * keys.unsqueeze(2)

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.matmul(queries, keys.transpose(2, 3))


class Dot(General):
    """The inner product of the query and a key of its width."""

    name = "dot"
    formula = "q · k,  k = W_k m"
    paper = "Luong et al. 2015, eq. 8"
    when = "The cheapest; scores grow with the width, so it can saturate in wide models."


class ScaledDot(Dot):
    """The inner product over the root of the width."""

    name = "scaled_dot"
    formula = "q · k / √d,  k = W_k m"
    paper = "Vaswani et al. 2017, eq. 1"
    when = "As dot, and steady in wide models."

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().units(queries, keys) * keys.size(-1) ** -0.5

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().total(queries, keys) * keys.size(-1) ** -0.5


class Dual(ScaledDot):
    """Two inner products of the query: with a key, and with the value itself."""

    name = "dual"
    formula = "(a q · W_k m + b q · W_v m) / √d,  c = Σ α W_v m"
    paper = "none: scores by key and by value, with learned weights"
    when = "To test whether keys should depend on their values."
    width_divided_by_heads = ("decoder.width",)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.value = FastLinear(sizes.memory, sizes.query, bias=False)
        self.shares = nn.Parameter(torch.empty(2))  # a, b

    def initialise(self) -> None:
        nn.init.constant_(self.shares, 0.5)

    def _value_width(self, sizes: Sizes) -> int:
        return sizes.query

    def prepare(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Both products are linear in the query, so one key holds their sum."""
        values = self.value(memory)  # (B, S, H)
        return self.shares[0] * self.keys(memory) + self.shares[1] * values, values


class Cosine(General):
    """The angle between query and key, sharpened by a learned temperature."""

    name = "cosine"
    formula = "exp(g) · cos(q, k),  k = W_k m"
    paper = "Graves et al. 2014, eq. 5-6"
    when = "If the lengths of vectors are misleading; it needs some updates to learn its temperature."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.log_scale = nn.Parameter(torch.empty(1))  # g

    def initialise(self) -> None:
        nn.init.constant_(self.log_scale, 2.0)

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().units(*self._directions(queries, keys)) * self.log_scale.exp()

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().total(*self._directions(queries, keys)) * self.log_scale.exp()

    def _directions(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(queries, dim=-1, eps=1e-6), F.normalize(keys, dim=-1, eps=1e-6)


class ScalarKeyScore(Score):
    """A score whose keys are one number for each group, so that it has no hidden units."""

    width_divided_by_heads = ("encoder.output_width",)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.key_groups = self.key_width = sizes.memory if sizes.per_feature else sizes.heads  # G


class Linear(ScalarKeyScore):
    """One weight for every entry of query and memory; the query's part is the same for all positions."""

    name = "linear"
    formula = "w · [q; m] = w_q · q + w_m · m;  w_q · q cancels in the softmax"
    paper = "Luong et al. 2015, eq. 8 (concat) without its tanh"
    when = "To show why additive needs its tanh: the softmax of this score does not depend on the query."
    supports = ("heads", "per_feature")
    reasons: ClassVar = {"hops": "gives the same weights for every query, and hops only change the query"}

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.query = FastLinear(sizes.query, self.key_width, bias=False)
        self.memory = nn.Linear(sizes.memory, self.key_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)  # (B, S, G)

    def queries(self, query: Tensor) -> Tensor:
        return self.query(query)  # (B, T, G)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries + keys.transpose(2, 3)  # (B, G, T, 1) + (B, G, 1, S)


class Static(ScalarKeyScore):
    """The memory alone decides: the same weights at every step."""

    name = "static"
    formula = "vᵀ tanh(W m)"
    paper = "Lin et al. 2017, as a context that never changes"
    when = "To measure what it contributes that attention changes from step to step."
    supports = ("heads", "per_feature")
    reasons: ClassVar = {"hops": "does not read the query, and hops only change the query"}

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.hidden = FastLinear(sizes.memory, sizes.width)
        self.v = nn.Linear(sizes.width, self.key_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.v(torch.tanh(self.hidden(memory)))  # (B, S, G)

    def queries(self, query: Tensor) -> Tensor:
        return query.new_zeros(*query.shape[:2], self.key_width)  # (B, T, G), the query is not read

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries + keys.transpose(2, 3)  # (B, G, T, 1) + (B, G, 1, S)


class Location(ScalarKeyScore):
    """The query alone decides: each position has its own weights, and the memory is not read."""

    name = "location"
    formula = "w_s · q,  s = 0 … data.max_length"
    paper = "Luong et al. 2015, eq. 8 (location)"
    when = "With tutorial, whose only score it is; it does not read the words, so word orders must be similar."
    supports = ("heads", "hops")
    reasons: ClassVar = {"per_feature": "would need a matrix of positions for every dimension"}
    needs_max_length = True

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.positions = sizes.positions
        self.w = FastLinear(sizes.query, sizes.heads * sizes.positions)

    def keys(self, memory: Tensor) -> Tensor:
        return memory.new_zeros(*memory.shape[:2], self.key_width)  # (B, S, G)

    def queries(self, query: Tensor) -> Tensor:
        return self.w(query)  # (B, T, G · positions)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions beyond the longest source have no parameters and get a very low score."""
        beyond = keys.size(2) - self.positions
        lowest = torch.finfo(queries.dtype).min / 4
        seen = F.pad(queries, (0, beyond), value=lowest) if beyond > 0 else queries[..., : keys.size(2)]
        return seen + keys.transpose(2, 3)  # (B, G, T, S)


SCORES: dict[str, type[Score]] = {
    score.name: score for score in (Additive, General, Dot, ScaledDot, Linear, Dual, Cosine, Location, Static)
}
