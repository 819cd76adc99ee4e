"""What a loop over steps uses again and again: weights and values whose gradients are formed once, after all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.models.layout import Laid, linear, summed_over_rows, times

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


class Room:
    """Memory for gradients that the steps of a loop write, step after step, so that they need not be joined."""

    def __init__(self) -> None:
        self._rows = 0
        self._tables: dict[int, Tensor] = {}  # by backward pass

    def place(self, rows: int) -> slice:
        """Where the next step of the loop will write."""
        self._rows += rows
        return slice(self._rows - rows, self._rows)

    def at(self, place: slice, width: int, like: Tensor) -> Tensor:
        """Two gradients of a step: (2, B, width). The first step is the last to write, and leaves the room empty."""
        task = torch._C._current_graph_task_id()
        if task not in self._tables:
            self._tables[task] = like.new_empty(2, self._rows, width)
        return (self._tables[task] if place.start else self._tables.pop(task))[:, place]


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Tensors (B, …) one after the other (N, …): as they lie, if they lie so, or else copied together."""
    first, *others = parts
    end, base = first.data_ptr(), first.untyped_storage().data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != end or part.untyped_storage().data_ptr() != base:
            return torch.cat(list(parts))
        end += part.nbytes
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride()) if others else first


class _Cut(Function):
    """Rows of a table for each step of a loop: (N, C) -> (B, C) each."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        return table.split(list(sizes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _stacked(grads), None


def cut(table: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows (N, C) of each step: (B, C) each."""
    parts: tuple[Tensor, ...] = _Cut.apply(table, sizes)  # type: ignore[no-untyped-call]
    return parts


class SharedWeight(_Left):
    """What the steps of one loop share of a weight: they leave their inputs and the gradients of their outputs."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.uses = weight.detach(), 0
        self.bias = None if bias is None else bias.detach()

    def forwards(self, inputs: Tensor) -> Tensor:
        """The product of one step; a weight that is used once is not worth another layout."""
        self.uses += 1
        return times(inputs, self.weight, self.bias) if self.uses == 1 else self._laid(inputs, self.bias)

    def backwards(self, grads: Tensor) -> Tensor:
        """The gradient of its input."""
        return times(grads, self.weight.t()) if self.uses == 1 else self._turned(grads)

    @cached_property
    def _laid(self) -> Laid:
        return Laid(self.weight)

    @cached_property
    def _turned(self) -> Laid:
        return Laid(self.weight.t())


class _Gather(Function):
    """Stands between a weight and the steps that use it: its gradient is one product, when all of them are done."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, steps: SharedWeight) -> Tensor:
        ctx.steps, ctx.biased = steps, bias is not None
        ctx.set_materialize_grads(False)
        return weight.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        left = ctx.steps.take()
        if not left:
            return None, None, None
        inputs, grads = (_stacked(parts[::-1]) for parts in zip(*left, strict=True))
        return summed_over_rows(grads, inputs), grads.sum(dim=0) if ctx.biased else None, None


class _Step(Function):
    """One product of a loop; `token` is what `_Gather` gave, so that it comes after this in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, token: Tensor, steps: SharedWeight) -> Tensor:
        ctx.steps = steps
        ctx.save_for_backward(inputs)
        return steps.forwards(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        ctx.steps.leave(*ctx.saved_tensors, grad)
        return ctx.steps.backwards(grad) if ctx.needs_input_grad[0] else None, None, None


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """What the queries of several steps have (B, G, t, C), one step after the other: (B, G, T · t, C)."""
    return _stacked(parts).unflatten(0, (len(parts), -1)).permute(1, 2, 0, 3, 4).flatten(2, 3)


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
        # Rows leave a loop and never come back, so the first steps had the most.
        (weights, grads), *fewer = (
            [_side_by_side(parts) for parts in zip(*some, strict=True)]
            for _, some in groupby(reversed(left), key=lambda one: len(one[0]))
        )
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

    products: dict[tuple[Product, bool], tuple[Tensor, SharedWeight]]  # with and without its bias
    values: dict[Tensor, tuple[_Left, Tensor]]
    rooms: dict[nn.Module, Room]


_loop: ContextVar[_Loop | None] = ContextVar("_loop", default=None)


@contextmanager
def one_gradient() -> Iterator[None]:
    """Within, the gradients of `Product`s and of what is mixed are formed once for all steps, not once for each."""
    token = _loop.set(_Loop({}, {}, {}))
    try:
        yield
    finally:
        _loop.reset(token)


class Product(nn.Linear):
    """A linear map by the fastest products there are; where a loop uses it at each step, with one gradient for all."""

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
        shared = self.shared(inputs, bias is not None)
        if shared is None:
            return linear(inputs, self.weight, bias)
        found: Tensor = _Step.apply(inputs.reshape(-1, self.in_features), *shared)  # type: ignore[no-untyped-call]
        return found.view(*inputs.shape[:-1], self.out_features)

    def shared(self, inputs: Tensor, biased: bool = True) -> tuple[Tensor, SharedWeight] | None:
        """What the steps of the loop we are in share of this product: what `_Gather` gave, and where they leave."""
        loop, key = _loop_of(inputs), (self, biased)
        if loop is None:
            return None
        if key not in loop.products:
            bias = self.bias if biased else None
            steps = SharedWeight(self.weight, bias)
            loop.products[key] = _Gather.apply(self.weight, bias, steps), steps  # type: ignore[no-untyped-call]
        return loop.products[key]


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


def room_of(module: nn.Module, inputs: Tensor) -> Room | None:
    """The room of a part that the steps of a loop go through, where there is a loop."""
    loop = _loop_of(inputs)
    return None if loop is None else loop.rooms.setdefault(module, Room())


def _loop_of(inputs: Tensor) -> _Loop | None:
    """The loop we are in, where gradients are formed at all; autocast and the compiler keep to torch's own ways."""
    if not torch.is_grad_enabled() or torch.is_autocast_enabled(inputs.device.type) or torch.compiler.is_compiling():
        return None
    return _loop.get()
