"""Weights and values that a loop uses at every step: their gradients are computed once, after all steps.

Autograd would add a gradient of the weight's size at every step. Within `share_gradients()` each use only stores its
inputs and the gradient of its outputs; after the backward passes of all steps, one product computes the whole gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.kernels import reference
from translate.kernels.dispatch import kernel, uses_twin
from translate.kernels.matmul import PackedWeight, linear, linear_no_grad, weight_gradient

# -- the loop ----------------------------------------------------------------------------------------------------------


class _Loop(NamedTuple):
    """The weights and values that the steps of one loop have used so far."""

    weights: dict[tuple[FastLinear, bool], SharedWeight]  # with and without the bias
    values: dict[Tensor, _SharedValues]


_loop: ContextVar[_Loop | None] = ContextVar("_loop", default=None)


@contextmanager
def share_gradients() -> Iterator[None]:
    """In this context, gradients of `FastLinear`s and of weighted sums are computed once for all steps of a loop."""
    token = _loop.set(_Loop({}, {}))
    try:
        yield
    finally:
        _loop.reset(token)


def _current_loop(inputs: Tensor) -> _Loop | None:
    """The current loop, if it shares gradients; None under autocast and torch.compile."""
    if not torch.is_grad_enabled() or torch.is_autocast_enabled(inputs.device.type):
        return None
    return None if uses_twin("weighted_sum") else _loop.get()


class DeferredGradients:
    """Pairs of tensors that the backward passes of the steps collect for a later backward pass."""

    def __init__(self) -> None:
        self._pairs: dict[int, list[tuple[Tensor, Tensor]]] = {}  # by backward pass

    def add(self, one: Tensor, other: Tensor) -> None:
        self._pairs.setdefault(torch._C._current_graph_task_id(), []).append((one, other))

    def pop(self) -> list[tuple[Tensor, Tensor]]:
        """All pairs that this backward pass has added, the last step first."""
        return self._pairs.pop(torch._C._current_graph_task_id(), [])


# -- products with one weight ------------------------------------------------------------------------------------------


class SharedWeight:
    """One weight in one loop: computes the products of the steps and collects the inputs of its gradient.

    `anchor` is between the weight and the steps in the graph, so that its backward pass comes after theirs.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.uses = weight.detach(), 0
        self.bias = None if bias is None else bias.detach()
        self.deferred = DeferredGradients()
        self.anchor: Tensor = _WeightAnchor.apply(weight, bias, self.deferred)  # type: ignore[no-untyped-call]

    def product(self, inputs: Tensor) -> Tensor:
        """x Wᵀ + b of one step; a weight that is used once is not worth packing."""
        self.uses += 1
        return linear_no_grad(inputs, self.weight, self.bias) if self.uses == 1 else self._packed(inputs, self.bias)

    def input_gradient(self, grads: Tensor) -> Tensor:
        return linear_no_grad(grads, self.weight.t()) if self.uses == 1 else self._packed_transpose(grads)

    @cached_property
    def _packed(self) -> PackedWeight:
        return PackedWeight(self.weight)

    @cached_property
    def _packed_transpose(self) -> PackedWeight:
        return PackedWeight(self.weight.t())


class _WeightAnchor(Function):
    """Does nothing forward; backward it computes the gradient of the weight, one product for all steps."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, deferred: DeferredGradients) -> Tensor:
        ctx.deferred, ctx.biased = deferred, bias is not None
        ctx.set_materialize_grads(False)
        return weight.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        pairs = ctx.deferred.pop()
        if not pairs:
            return None, None, None
        inputs, grads = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        return weight_gradient(grads, inputs), grads.sum(dim=0) if ctx.biased else None, None


class _SharedProduct(Function):
    """The product of one step."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, anchor: Tensor, shared: SharedWeight) -> Tensor:
        ctx.shared = shared
        ctx.save_for_backward(inputs)
        return shared.product(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        (inputs,) = ctx.saved_tensors
        ctx.shared.deferred.add(inputs, grad)
        return ctx.shared.input_gradient(grad) if ctx.needs_input_grad[0] else None, None, None


class FastLinear(nn.Linear):
    """A linear layer with the fastest products; in a loop its weight gradient is computed once for all steps."""

    __hash__ = nn.Module.__hash__
    packed: PackedWeight | None = None  # the weight, in a copy of a model that no longer changes

    def forward(self, inputs: Tensor) -> Tensor:
        return self._product(inputs, self.bias)

    def without_bias(self, inputs: Tensor) -> Tensor:
        return self._product(inputs, None)

    def shared(self, inputs: Tensor, biased: bool = True) -> SharedWeight | None:
        """The shared weight of the current loop; None outside of a loop."""
        loop, key = _current_loop(inputs), (self, biased)
        if loop is None:
            return None
        if key not in loop.weights:
            loop.weights[key] = SharedWeight(self.weight, self.bias if biased else None)
        return loop.weights[key]

    def _product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        shared = self.shared(inputs, bias is not None)
        if shared is None:
            return linear(inputs, self.weight, bias)
        flat = inputs.reshape(-1, self.in_features)
        product: Tensor = _SharedProduct.apply(flat, shared.anchor, shared)  # type: ignore[no-untyped-call]
        return product.view(*inputs.shape[:-1], self.out_features)


# -- weighted sums of the same values ----------------------------------------------------------------------------------


class _SharedValues:
    """The values of one loop: collects the inputs of their gradient; `anchor` as in `SharedWeight`."""

    def __init__(self, values: Tensor) -> None:
        self.deferred = DeferredGradients()
        self.anchor: Tensor = _ValuesAnchor.apply(values, self.deferred)  # type: ignore[no-untyped-call]


@kernel(reference.weighted_sum)
def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_s α_s v_s: weights (B, G, T, S), values (B, G, S, C) -> (B, G, T, C).

    Steps share the gradient of the values only if they pass the same tensor.
    """
    loop = _current_loop(values)
    if loop is None or not values.requires_grad:
        return torch.matmul(weights, values)
    if values not in loop.values:
        loop.values[values] = _SharedValues(values)
    shared, detached = loop.values[values], values.detach()
    total: Tensor = _WeightedSum.apply(weights, shared.anchor, detached, shared.deferred)  # type: ignore[no-untyped-call]
    return total


class _WeightedSum(Function):
    """One sum over values; keeps its weights (B, G, t, S) and the gradient of its result (B, G, t, C)."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, anchor: Tensor, values: Tensor, deferred: DeferredGradients) -> Tensor:
        ctx.deferred = deferred
        ctx.save_for_backward(weights, values)
        return weights @ values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weights, values = ctx.saved_tensors
        ctx.deferred.add(weights, grad)
        return grad @ values.transpose(2, 3), None, None, None


class _ValuesAnchor(Function):
    """Does nothing forward; backward it computes the gradient of the values, one product for all steps."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, deferred: DeferredGradients) -> Tensor:
        ctx.deferred = deferred
        ctx.set_materialize_grads(False)
        return values.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, None]:
        pairs = ctx.deferred.pop()
        if not pairs:
            return None, None
        weights, grads = (torch.cat(parts, dim=2) for parts in zip(*pairs, strict=True))  # (B, G, T, S), (B, G, T, C)
        return weights.transpose(2, 3) @ grads, None  # (B, G, S, C)
