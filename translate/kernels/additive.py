"""The additive score vᵀ tanh(q + k), whose hidden units are the largest tensor of a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from translate.kernels import reference
from translate.kernels.dispatch import kernel
from translate.kernels.slices import cached_slices

MAX_UNITS = 1 << 24  # elements of a (B, G, T, S, A) tensor of hidden units that exist at once


@kernel(reference.additive_score)
def additive_score(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(q + k): queries (B, G, T, A), keys (B, G, S, A), v (G, A) -> scores (B, G, T, S)."""
    if len(v) > 1:
        return in_slices(lambda some, all_keys: reference.additive_score(some, all_keys, v), queries, keys)
    v = v.to(torch.promote_types(queries.dtype, keys.dtype))  # coverage makes keys float32 under autocast
    return in_slices(lambda some, all_keys: _one_group(some, all_keys, v), queries, keys)


def in_slices(compare: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor) -> Tensor:
    """Compare some queries at a time, so that the size of their hidden units is bounded for all lengths."""
    rows = max(1, MAX_UNITS // max(1, keys.numel()))
    if rows >= queries.size(2):
        return compare(queries, keys)
    # Several slices: their hidden units are computed again in the backward pass instead of being kept.
    slices = [
        checkpoint(compare, part, keys, use_reentrant=False, preserve_rng_state=False)
        for part in queries.split(rows, dim=2)
    ]
    return torch.cat(slices, dim=2)


def _one_group(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return _scores(queries, keys, v)
    scores: Tensor = _AdditiveScore.apply(queries, keys, v)  # type: ignore[no-untyped-call]
    return scores


def _scores(queries: Tensor, keys: Tensor, v: Tensor, units: Tensor | None = None) -> Tensor:
    """The scores (B, 1, T, S); the hidden units are left in `units` (B, 1, T, S, A) where it is given.

    In float32 and float64 the units are σ(2x), and tanh(x) = 2 σ(2x) − 1 is applied to their sum: torch's tanh takes
    four times as long.
    """
    shape = (queries.size(0), 1, queries.size(2), keys.size(2), keys.size(3))
    scores, by_sigmoid = v.new_empty(shape[:-1]), _is_precise(v.dtype)
    queries, scale, v = (2 * queries, 2, 2 * v[0]) if by_sigmoid else (queries, 1, v[0])
    slices = cached_slices(shape[0], math.prod(shape[1:]), keys.device)
    room = v.new_empty(slices[0].stop if slices else 0, *shape[1:]) if units is None else units
    for some in slices:
        part = room[: some.stop - some.start] if units is None else units[some]
        torch.add(queries[some].unsqueeze(3), keys[some].unsqueeze(2), alpha=scale, out=part)
        scores[some] = (part.sigmoid_() if by_sigmoid else part.tanh_()) @ v
    return scores.sub_(v.sum() / 2) if by_sigmoid else scores


def _is_precise(dtype: torch.dtype) -> bool:
    return dtype in (torch.float32, torch.float64)


class _AdditiveScore(Function):
    """The same with an explicit derivative, which stores the units once and reads them fewer times."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        units = v.new_empty(*queries.shape[:3], *keys.shape[2:])  # (B, 1, T, S, A)
        ctx.save_for_backward(units, v)
        return _scores(queries, keys, v, units)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        units, v = ctx.saved_tensors
        grad, by_sigmoid = grad.to(v.dtype), _is_precise(v.dtype)
        slope = (torch.ops.aten.sigmoid_backward if by_sigmoid else torch.ops.aten.tanh_backward).grad_input
        weights = 4 * v[0] if by_sigmoid else v[0]  # dtanh(x)/dx = 4 σ(2x) (1 − σ(2x))
        batch, groups, steps, positions, width = units.shape
        by_queries, by_keys = v.new_empty(batch, groups, steps, width), v.new_empty(batch, groups, positions, width)
        by_v = torch.zeros_like(v)
        for some in cached_slices(batch, units[:1].numel(), units.device):
            part, of_keys = units[some], by_keys[some]
            # For a single query, the gradients of the units are those of the keys. They are multiplied by v at the end.
            by_units = of_keys.unsqueeze(2) if steps == 1 else torch.empty_like(part)  # (…, 1, T, S, A)
            slope(grad[some].unsqueeze(-1), part, grad_input=by_units)
            torch.sum(by_units, dim=3, out=by_queries[some])
            if steps > 1:
                torch.sum(by_units, dim=2, out=of_keys)
            of_keys.mul_(weights)
            by_v += grad[some].reshape(1, -1) @ part.flatten(0, 3)
        by_queries.mul_(weights)
        return by_queries, by_keys, 2 * by_v - grad.sum() if by_sigmoid else by_v
