"""What a loop over steps uses again and again: weights and values whose gradients are formed once, after all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.process import cpu_name

_CACHED_ELEMENTS = 1 << 18  # what stays in a core's own cache between two passes over it


def cached_slices(rows: int, width: int, device: torch.device) -> list[slice]:
    """Slices of rows of so many elements that several passes over one find it in the cache; on a GPU, all at once."""
    most = max(1, _CACHED_ELEMENTS // max(1, width)) if device.type == "cpu" else max(1, rows)
    return [slice(begin, min(begin + most, rows)) for begin in range(0, rows, most)]


def tanh_(values: Tensor) -> Tensor:
    """tanh in place; on a CPU as 2 σ(2x) − 1, for which torch takes a quarter of the time, right to 1e-7."""
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return values.tanh_()
    return values.mul_(2).sigmoid_().mul_(2).sub_(1)


class _Left:
    """What the backward passes of a loop's steps leave for one that comes after all of them."""

    def __init__(self) -> None:
        self._left: dict[int, list[tuple[Tensor, Tensor]]] = {}  # by backward pass

    def leave(self, one: Tensor, other: Tensor) -> None:
        self._left.setdefault(torch._C._current_graph_task_id(), []).append((one, other))

    def take(self) -> list[tuple[Tensor, Tensor]]:
        """All that this backward pass has left, the last step first."""
        return self._left.pop(torch._C._current_graph_task_id(), [])


def _joined(left: Sequence[tuple[Tensor, Tensor]], dim: int) -> tuple[Tensor, Tensor]:
    """What several steps have left, one after the other."""
    return torch.cat([one for one, _ in left], dim), torch.cat([other for _, other in left], dim)


class _Steps(_Left):
    """What the steps of one loop share of a weight: they leave their inputs and the gradients of their outputs."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.forwards = in_rows(weight.detach().t())
        self.backwards = in_rows(weight.detach())
        self.bias = None if bias is None else bias.detach()


def _well_laid(matrix: Tensor) -> bool:
    """Rows a multiple of 4 KiB apart would fall onto the same few places of the cache."""
    return matrix.is_contiguous() and matrix.size(1) * matrix.element_size() % 4096 != 0


def in_rows(matrix: Tensor) -> Tensor:
    """The matrix so that products read it row by row, its rows well laid: as it is, or a copy.

    On Intel's processors x Wᵀ of a few rows runs 1.2 to 1.9 times as fast from such a copy. On AMD's (Zen 4) it gains
    less than the copy costs: updates were 1.3 % faster without.
    """
    if _well_laid(matrix) or "Intel" not in cpu_name():
        return matrix
    rows, columns = matrix.shape
    apart = columns + 16 if columns * matrix.element_size() % 4096 == 0 else columns
    return matrix.new_empty(rows, apart)[:, :columns].copy_(matrix)


class _Gather(Function):
    """Stands between a weight and the steps that use it: its gradient is one product, when all of them are done."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, steps: _Steps) -> Tensor:
        ctx.steps, ctx.biased = steps, bias is not None
        ctx.set_materialize_grads(False)
        return weight.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        left = ctx.steps.take()
        if not left:
            return None, None, None
        inputs, grads = _joined(left, dim=0)
        return grads.t() @ inputs, grads.sum(dim=0) if ctx.biased else None, None


class _Step(Function):
    """One product of a loop; `token` is what `_Gather` gave, so that it comes after this in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, token: Tensor, steps: _Steps) -> Tensor:
        ctx.steps = steps
        ctx.save_for_backward(inputs)
        if steps.bias is None:
            return inputs @ steps.forwards
        return torch.addmm(steps.bias, inputs, steps.forwards)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        ctx.steps.leave(*ctx.saved_tensors, grad)
        return grad @ ctx.steps.backwards if ctx.needs_input_grad[0] else None, None, None


class _GatherValues(Function):
    """As `_Gather`, between the values of a sentence and the steps that look at them."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, left: _Left) -> Tensor:
        ctx.left, ctx.rows = left, len(values)
        ctx.set_materialize_grads(False)
        return values.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, None]:
        left = ctx.left.take()
        if not left:
            return None, None
        parts = {rows: _joined(list(some), dim=2) for rows, some in groupby(left, key=lambda one: len(one[0]))}
        # Rows leave a loop and never come back, so the first steps, the last ones here, had the most.
        (weights, grads), *fewer = reversed(parts.values())
        by_values = weights.transpose(2, 3) @ grads  # (B, G, S, C)
        assert len(by_values) == ctx.rows, "the first step looks with all rows, and a later one cannot do without it"
        for weights, grads in fewer:
            by_values[: len(grads)].flatten(0, 1).baddbmm_(weights.transpose(2, 3).flatten(0, 1), grads.flatten(0, 1))
        return by_values, None


class _Mix(Function):
    """One sum over values; leaves its weights (B, G, t, S) and the gradient of its context (B, G, t, C)."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, token: Tensor, values: Tensor, left: _Left) -> Tensor:
        ctx.left = left
        ctx.save_for_backward(weights, values)
        return weights @ values[: len(weights)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weights, values = ctx.saved_tensors
        ctx.left.leave(weights, grad)
        return grad @ values[: len(grad)].transpose(2, 3), None, None, None


class _Loop(NamedTuple):
    """The weights and values that the steps of one loop have used so far."""

    products: dict[Product, tuple[_Steps, Tensor]]
    values: dict[Tensor, tuple[_Left, Tensor]]


_loop: ContextVar[_Loop | None] = ContextVar("_loop", default=None)


@contextmanager
def one_gradient() -> Iterator[None]:
    """Within, the gradients of `Product`s and of what is mixed are formed once for all steps, not once for each."""
    token = _loop.set(_Loop({}, {}))
    try:
        yield
    finally:
        _loop.reset(token)


class Product(nn.Linear):
    """A linear map that a loop uses at each of its steps."""

    __hash__ = nn.Module.__hash__

    def forward(self, inputs: Tensor) -> Tensor:
        loop = _loop_of(inputs)
        if loop is None:
            return super().forward(inputs)
        if self not in loop.products:
            steps = _Steps(self.weight, self.bias)
            loop.products[self] = steps, _Gather.apply(self.weight, self.bias, steps)  # type: ignore[no-untyped-call]
        steps, token = loop.products[self]
        found: Tensor = _Step.apply(inputs.reshape(-1, self.in_features), token, steps)  # type: ignore[no-untyped-call]
        return found.view(*inputs.shape[:-1], self.out_features)


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_s α_s v_s: weights (B, G, T, S), values (B, G, S, C) -> (B, G, T, C), for as many rows as there are weights."""
    loop = _loop_of(values)
    if loop is None or not values.requires_grad:
        return torch.matmul(weights, values[: len(weights)])
    if values not in loop.values:
        left = _Left()
        loop.values[values] = left, _GatherValues.apply(values, left)  # type: ignore[no-untyped-call]
    left, token = loop.values[values]
    mixed: Tensor = _Mix.apply(weights, token, values.detach(), left)  # type: ignore[no-untyped-call]
    return mixed


def _loop_of(inputs: Tensor) -> _Loop | None:
    """The loop we are in, where gradients are formed at all; autocast and the compiler keep to torch's own ways."""
    if not torch.is_grad_enabled() or torch.is_autocast_enabled(inputs.device.type) or torch.compiler.is_compiling():
        return None
    return _loop.get()
