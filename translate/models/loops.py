"""What a loop over steps uses again and again: weights and values whose gradients are formed once, after all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.models.layout import Laid

_MINUS_ONE = torch.tensor(-1.0)
_CACHED_ELEMENTS = 1 << 18  # what stays in a core's own cache between two passes over it


def cached_slices(rows: int, width: int, device: torch.device) -> list[slice]:
    """Slices of rows of so many elements that several passes over one find it in the cache; on a GPU, all at once."""
    most = max(1, _CACHED_ELEMENTS // max(1, width)) if device.type == "cpu" else max(1, rows)
    return [slice(begin, min(begin + most, rows)) for begin in range(0, rows, most)]


def tanh_(values: Tensor) -> Tensor:
    """tanh in place; on a CPU as 2 σ(2x) − 1, for which torch takes a quarter of the time, right to 1e-7."""
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return values.tanh_()
    return torch.add(_MINUS_ONE, values.mul_(2).sigmoid_(), alpha=2, out=values)


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
        self.weight, self.uses = weight.detach(), 0
        self.bias = None if bias is None else bias.detach()

    def forwards(self, inputs: Tensor) -> Tensor:
        """The product of one step; a weight that is used once is not worth another layout."""
        self.uses += 1
        return F.linear(inputs, self.weight, self.bias) if self.uses == 1 else self._laid(inputs, self.bias)

    def backwards(self, grads: Tensor) -> Tensor:
        """The gradient of its input."""
        return grads @ self.weight if self.uses == 1 else self._turned(grads)

    @cached_property
    def _laid(self) -> Laid:
        return Laid(self.weight)

    @cached_property
    def _turned(self) -> Laid:
        return Laid(self.weight.t())


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
        return steps.forwards(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        ctx.steps.leave(*ctx.saved_tensors, grad)
        return ctx.steps.backwards(grad) if ctx.needs_input_grad[0] else None, None, None


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

    products: dict[tuple[Product, bool], tuple[_Steps, Tensor]]  # with and without its bias
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
    laid: Laid | None = None  # the weight, once it no longer changes

    def settle(self) -> None:
        """Take the weight to be what it will stay."""
        self.laid = Laid.fixed(self.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._product(inputs, self.bias)

    def times(self, inputs: Tensor) -> Tensor:
        """The product without the bias."""
        return self._product(inputs, None)

    def _product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        if self.laid is not None and self.laid.is_usable:
            return self.laid(inputs.reshape(-1, self.in_features), bias).view(*inputs.shape[:-1], self.out_features)
        loop, key = _loop_of(inputs), (self, bias is not None)
        if loop is None:
            return F.linear(inputs, self.weight, bias)
        rows = inputs.reshape(-1, self.in_features)
        if key not in loop.products:
            steps = _Steps(self.weight, bias)
            loop.products[key] = steps, _Gather.apply(self.weight, bias, steps)  # type: ignore[no-untyped-call]
        steps, token = loop.products[key]
        found: Tensor = _Step.apply(rows, token, steps)  # type: ignore[no-untyped-call]
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
