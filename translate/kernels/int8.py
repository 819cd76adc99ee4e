"""Products with weights of 8 bits: faster and a little less exact; only for search, and only if search.int8 is set."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from translate.errors import ConfigError
from translate.kernels import reference
from translate.kernels.dispatch import uses_twin
from translate.kernels.packed import exchange_linears
from translate.kernels.shared_gradients import FastLinear

MIN_SIDE = 64  # a matrix with a shorter side gains nothing
Model = TypeVar("Model", bound=nn.Module)


def int8(model: Model, part: str) -> Model:
    """A copy whose submodule `part` computes its products in 8 bits. It can search, but neither train nor unroll."""
    _check_machine(next(model.parameters()).device)
    model = copy.deepcopy(model)
    exchange_linears(
        model.get_submodule(part), lambda linear: Int8Linear(linear) if min(linear.weight.shape) >= MIN_SIDE else linear
    )
    return model


def _check_machine(device: torch.device) -> None:
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
    if device.type != "cpu" or not has_vnni() or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        raise ConfigError(
            "search.int8 needs a CPU with instructions for products of 8 bits (VNNI) and a torch that uses them, "
            f"which this machine does not have for {device}. Leave search.int8 out."
        )


class Int8Linear(nn.Module):
    """x Wᵀ + b, with a scale for each row of W and one for each row of x.

    Sums of integers are exact, so that a row's result does not depend on the number of rows.
    """

    def __init__(self, linear: FastLinear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self.rounded, self.scales = reference.rounded_to_int8(linear.weight.detach().float())  # (N, K), (N, 1)
        if not uses_twin("linear"):
            self.packed = torch.ops.onednn.qlinear_prepack(self.rounded.to(torch.int8).contiguous(), None)
            self.zeros = torch.zeros(self.out_features, dtype=torch.long)
            del self.rounded

    def forward(self, inputs: Tensor) -> Tensor:
        product = self.without_bias(inputs)
        return product if self.bias is None else product.add_(self.bias)

    def without_bias(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, self.in_features).float()
        if uses_twin("linear"):
            product = reference.int8_linear(rows, self.rounded, self.scales)
        else:
            product = self._product(rows)
        return product.view(*inputs.shape[:-1], self.out_features)

    def _product(self, rows: Tensor) -> Tensor:
        largest = torch.maximum(rows.amax(dim=1, keepdim=True), -rows.amin(dim=1, keepdim=True))  # (M, 1)
        largest = largest.clamp_(min=torch.finfo(torch.float32).tiny)
        # From −127 … 127 to 1 … 255: the instruction needs one unsigned operand.
        most = reference.INT8_MOST
        rounded = (rows * (most / largest)).round_().add_(most + 1).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1 / most, most + 1, self.packed, self.scales.squeeze(1), self.zeros, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return product.mul_(largest)
