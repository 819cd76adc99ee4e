"""Copies of a model for search, whose linear layers are replaced by faster ones that cannot be trained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from translate.kernels.dispatch import uses_twin
from translate.kernels.matmul import PackedWeight, suits_onednn
from translate.kernels.shared_gradients import FastLinear

Model = TypeVar("Model", bound=nn.Module)


def packed(model: Model) -> Model:
    """A copy with weights in the fastest layout for products with few rows; on a GPU the model itself."""
    if uses_twin("linear") or next(model.parameters()).device.type != "cpu":
        return model
    model = copy.deepcopy(model)
    exchange_linears(model, PackedLinear)
    return model


def exchange_linears(module: nn.Module, make: Callable[[FastLinear], nn.Module]) -> None:
    """Replace each `FastLinear` by the result of `make`."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, FastLinear):
                setattr(parent, name, make(child))


class PackedLinear(FastLinear):
    """A linear layer whose weight no longer changes: in oneDNN's layout where that is faster, else by column.

    By column, products with 5 and 64 rows are 1.1 to 1.5 times as fast on Intel's processors (docs/search.md).
    """

    def __init__(self, linear: FastLinear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.packed = PackedWeight(weight) if suits_onednn(weight) else None
        by_column = weight.t().contiguous().t() if self.packed is None else weight
        self.weight = nn.Parameter(by_column, requires_grad=False)
        self.bias = linear.bias

    def _product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        if self.packed is None or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return super()._product(inputs, bias)
        product = self.packed(inputs.reshape(-1, self.in_features), bias)
        return product.view(*inputs.shape[:-1], self.out_features)
