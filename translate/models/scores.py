"""How well a query fits a position of the source.

A score has three parts: `keys`, computed once per sentence; `queries`, computed once per query; and `compare`, which
sets every query against every key. Both are cut into G groups (heads) before they are compared. To add a score, write
its class, put it into the table, and its name among the choices of `translate/config.py`: every command, check and page
picks it up from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from translate.models.loops import Product, cached_slices

MOST_ELEMENTS = 1 << 24  # of the (B, G, T, S, A) tensor of a comparison that exist at once


@dataclass(frozen=True)
class Sizes:
    """What a score is built for."""

    query: int  # H
    memory: int  # D
    width: int  # A, where the formula leaves it free
    heads: int
    positions: int  # the longest source, end symbol included
    per_feature: bool  # one score for each dimension of the values instead of one for each head


class Score(nn.Module):
    """Compares queries (B, T, H) with a memory (B, S, D)."""

    formula: ClassVar[str]
    paper: ClassVar[str]
    when: ClassVar[str]

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.key_groups = sizes.heads  # into how many groups keys and queries are cut
        self.key_width = sizes.query  # A
        self.value_width = self._value_width(sizes)  # C

    def _value_width(self, sizes: Sizes) -> int:
        return sizes.memory

    def initialise(self) -> None:
        """Whatever should not start as biases (nil) and matrices (Xavier) do."""

    def prepare(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, S, A) and values (B, S, C) of a memory."""
        return self.keys(memory), memory

    def keys(self, memory: Tensor) -> Tensor:
        """The part that depends on the source alone: (B, S, D) -> (B, S, A)."""
        raise AssertionError("every score defines its keys")

    def queries(self, query: Tensor) -> Tensor:
        """The part that depends on the query alone: (B, T, H) -> (B, T, A)."""
        return query

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries (B, G, T, A / G), keys (B, G, S, A / G) -> scores (B, G, T, S)."""
        raise AssertionError("every score defines its comparison")

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """query (B, T, H), keys (B, G, S, A / G) -> scores (B, G, T, S)."""
        return self.compare(split_heads(self.queries(query), keys.size(1)), keys)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(B, T, G · A) -> (B, G, T, A)."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


class UnitScore(Score):
    """A score that is a sum over hidden units; weighed otherwise, they give one score for each feature."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.mix = nn.Linear(self._unit_width(sizes), self.value_width, bias=False) if sizes.per_feature else None

    def _unit_width(self, sizes: Sizes) -> int:
        return sizes.query

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries (B, G, T, A / G), keys (B, G, S, A / G) -> hidden units (B, G, T, S, A / G)."""
        raise AssertionError("every score of this kind defines its units")

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The sum of the units (B, G, T, S), for a score that has no shorter way to it."""
        return in_slices(lambda some, all_keys: self.units(some, all_keys).sum(dim=-1), queries, keys)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.total(queries, keys) if self.mix is None else in_slices(self._mixed, queries, keys)

    def _mixed(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Choi et al. 2018: a score for each feature, (B, 1, T, S, A) -> (B, C, T, S)."""
        assert self.mix is not None
        return self.mix(self.units(queries, keys)).squeeze(1).permute(0, 3, 1, 2)


def in_slices(compare: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor) -> Tensor:
    """Compare some queries at a time, so that their hidden units stay within bounds, whatever the lengths are."""
    rows = max(1, MOST_ELEMENTS // max(1, keys.numel()))
    if rows >= queries.size(2):
        return compare(queries, keys)
    # Several slices: their hidden units are computed again in the backward pass instead of being kept.
    slices = [
        checkpoint(compare, part, keys, use_reentrant=False, preserve_rng_state=False)
        for part in queries.split(rows, dim=2)
    ]
    return torch.cat(slices, dim=2)


class Additive(UnitScore):
    """A small network with one hidden layer looks at query and position together."""

    formula = "vᵀ tanh(W q + U m)"
    paper = "Bahdanau et al. 2015, appendix A.1.2"
    when = "The safe choice: robust at any width, the slowest of the scores."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.key_width = sizes.width
        self.query = Product(sizes.query, sizes.width, bias=False)
        self.memory = Product(sizes.memory, sizes.width)
        if not sizes.per_feature:
            self.v = nn.Parameter(torch.empty(sizes.heads, sizes.width // sizes.heads))

    def _unit_width(self, sizes: Sizes) -> int:
        return sizes.width

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)  # (B, S, A)

    def queries(self, query: Tensor) -> Tensor:
        return self.query(query)  # (B, T, A)

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(queries.unsqueeze(3) + keys.unsqueeze(2))

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return in_slices(self._summed, queries, keys)

    def _summed(self, queries: Tensor, keys: Tensor) -> Tensor:
        if self.heads > 1:
            units = self.units(queries, keys)  # (B, G, T, S, A / G)
            return torch.einsum("bgtsa,ga->bgts", units, self.v.to(units.dtype))
        v = self.v.to(torch.promote_types(queries.dtype, keys.dtype))  # coverage makes keys float32 under autocast
        if not torch.is_grad_enabled():
            return _additive_scores(queries, keys, v)
        scores: Tensor = _AdditiveScore.apply(queries, keys, v)  # type: ignore[no-untyped-call]
        return scores


def _additive_scores(queries: Tensor, keys: Tensor, v: Tensor, units: Tensor | None = None) -> Tensor:
    """vᵀ tanh(q + k) as (B, 1, T, S); the hidden units are left in `units` (B, 1, T, S, A) where it is given.

    Units are σ(2x) instead of tanh(x) = 2 σ(2x) − 1 where they are precise enough for the difference: torch's tanh
    takes four times as long, and 2 and 1 need not go through every unit.
    """
    shape = (queries.size(0), 1, queries.size(2), keys.size(2), keys.size(3))
    scores, by_sigmoid = v.new_empty(shape[:-1]), _by_sigmoid(v.dtype)
    queries, scale, v = (2 * queries, 2, 2 * v[0]) if by_sigmoid else (queries, 1, v[0])
    slices = cached_slices(shape[0], math.prod(shape[1:]), keys.device)
    room = v.new_empty(slices[0].stop if slices else 0, *shape[1:]) if units is None else units
    for some in slices:
        part = room[: some.stop - some.start] if units is None else units[some]
        torch.add(queries[some].unsqueeze(3), keys[some].unsqueeze(2), alpha=scale, out=part)
        scores[some] = (part.sigmoid_() if by_sigmoid else part.tanh_()) @ v
    return scores.sub_(v.sum() / 2) if by_sigmoid else scores


def _by_sigmoid(dtype: torch.dtype) -> bool:
    return dtype in (torch.float32, torch.float64)


class _AdditiveScore(Function):
    """The same with its derivative written out, so that the units are kept once and go through memory less."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        units = v.new_empty(*queries.shape[:3], *keys.shape[2:])  # (B, 1, T, S, A)
        ctx.save_for_backward(units, v)
        return _additive_scores(queries, keys, v, units)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        units, v = ctx.saved_tensors
        grad, by_sigmoid = grad.to(v.dtype), _by_sigmoid(v.dtype)
        slope = (torch.ops.aten.sigmoid_backward if by_sigmoid else torch.ops.aten.tanh_backward).grad_input
        weights = 4 * v[0] if by_sigmoid else v[0]  # dtanh(x)/dx = 4 σ(2x) (1 − σ(2x))
        batch, groups, steps, positions, width = units.shape
        by_queries, by_keys = v.new_empty(batch, groups, steps, width), v.new_empty(batch, groups, positions, width)
        by_v = torch.zeros_like(v)
        for some in cached_slices(batch, units[:1].numel(), units.device):
            part, of_keys = units[some], by_keys[some]
            # Of a single query the gradients of the units are those of the keys. They are weighed last, once for each.
            by_units = of_keys.unsqueeze(2) if steps == 1 else torch.empty_like(part)  # (…, 1, T, S, A)
            slope(grad[some].unsqueeze(-1), part, grad_input=by_units)
            torch.sum(by_units, dim=3, out=by_queries[some])
            if steps > 1:
                torch.sum(by_units, dim=2, out=of_keys)
            of_keys.mul_(weights)
            by_v += grad[some].reshape(1, -1) @ part.flatten(0, 3)
        by_queries.mul_(weights)
        return by_queries, by_keys, 2 * by_v - grad.sum() if by_sigmoid else by_v


class General(UnitScore):
    """A bilinear form between query and memory."""

    formula = "qᵀ W m"
    paper = "Luong et al. 2015, eq. 8"
    when = "Fast and strong; the usual partner of the luong decoder."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.w = Product(sizes.memory, sizes.query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.w(memory)  # (B, S, H)

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries.unsqueeze(3) * keys.unsqueeze(2)

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.matmul(queries, keys.transpose(2, 3))


class Dot(General):
    """The inner product of the query and a key of its width."""

    formula = "q · k,  k = W_k m"
    paper = "Luong et al. 2015, eq. 8"
    when = "The cheapest; scores grow with the width, so it can saturate in wide models."


class ScaledDot(Dot):
    """The inner product over the root of the width."""

    formula = "q · k / √d,  k = W_k m"
    paper = "Vaswani et al. 2017, eq. 1"
    when = "As dot, and steady in wide models."

    def units(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().units(queries, keys) * keys.size(-1) ** -0.5

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().total(queries, keys) * keys.size(-1) ** -0.5


class Dual(ScaledDot):
    """Two inner products, with a key and with the value that is then taken."""

    formula = "(a q · W_k m + b q · W_v m) / √d,  c = Σ α W_v m"
    paper = "none: key and value share the work, in shares that are learned"
    when = "To ask whether a key should know what it stands for."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.value = Product(sizes.memory, sizes.query, bias=False)
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

    formula = "exp(g) · cos(q, k),  k = W_k m"
    paper = "Graves et al. 2014, eq. 5-6"
    when = "Where lengths of vectors mislead; needs a while to find its temperature."

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


class FlatScore(Score):
    """A score whose keys are one number for each group, so that there are no units to weigh."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.key_groups = self.key_width = sizes.memory if sizes.per_feature else sizes.heads  # G


class Linear(FlatScore):
    """One weight for every entry of query and memory; the query's share is the same for all positions."""

    formula = "w · [q; m] = w_q · q + w_m · m;  w_q · q cancels in the softmax"
    paper = "Luong et al. 2015, eq. 8 (concat) without its tanh"
    when = "To see why additive needs its tanh: under a softmax it cannot move, whatever the query."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.query = Product(sizes.query, self.key_width, bias=False)
        self.memory = nn.Linear(sizes.memory, self.key_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)  # (B, S, G)

    def queries(self, query: Tensor) -> Tensor:
        return self.query(query)  # (B, T, G)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries + keys.transpose(2, 3)  # (B, G, T, 1) + (B, G, 1, S)


class Static(FlatScore):
    """The memory alone decides: the same weights at every step."""

    formula = "vᵀ tanh(W m)"
    paper = "Lin et al. 2017, as a context that never changes"
    when = "To see what moving the attention is worth: it cannot."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.hidden = Product(sizes.memory, sizes.width)
        self.v = nn.Linear(sizes.width, self.key_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.v(torch.tanh(self.hidden(memory)))  # (B, S, G)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return keys.transpose(2, 3).expand(-1, -1, query.size(1), -1)  # (B, G, T, S)


class Location(FlatScore):
    """The query alone decides, by position: it knows where to look, not at what."""

    formula = "w_s · q,  s = 0 … data.max_length"
    paper = "Luong et al. 2015, eq. 8 (location)"
    when = "With tutorial, whose only score it is; it cannot see the words, so it needs languages of one order."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.positions = sizes.positions
        self.w = Product(sizes.query, sizes.heads * sizes.positions)

    def keys(self, memory: Tensor) -> Tensor:
        return memory.new_zeros(*memory.shape[:2], self.key_width)  # (B, S, G)

    def queries(self, query: Tensor) -> Tensor:
        return self.w(query)  # (B, T, G · positions)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions beyond the longest have no weights of their own and lose against all others."""
        beyond = keys.size(2) - self.positions
        lowest = torch.finfo(queries.dtype).min / 4
        seen = F.pad(queries, (0, beyond), value=lowest) if beyond > 0 else queries[..., : keys.size(2)]
        return seen + keys.transpose(2, 3)  # (B, G, T, S)


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "general": General,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "linear": Linear,
    "dual": Dual,
    "cosine": Cosine,
    "location": Location,
    "static": Static,
}
