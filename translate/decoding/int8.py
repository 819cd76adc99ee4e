"""Products with weights of 8 bits: faster and a little less exact, for search alone and only when asked for."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from translate.errors import ConfigError
from translate.models.decoders import OutputLayer
from translate.models.seq2seq import Seq2Seq

_MOST = 127  # the greatest number of 8 bits with a sign
_SMALLEST = 64  # matrices with a side below this gain nothing


def with_int8(model: Seq2Seq) -> Seq2Seq:
    """A copy whose decoder forms its products in 8 bits. It can take steps; it can neither train nor unroll."""
    _check_machine(next(model.parameters()).device)
    quick = copy.deepcopy(model)
    for parent in list(quick.decoder.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and min(child.weight.shape) >= _SMALLEST:
                setattr(parent, name, Int8Linear(child.weight, child.bias))
    quick.decoder.out = Int8OutputLayer(quick.decoder.out)
    return quick


def _check_machine(device: torch.device) -> None:
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
    if device.type != "cpu" or not has_vnni() or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        raise ConfigError(
            "search.int8 needs a CPU with instructions for products of 8 bits (VNNI) and a torch that uses them, "
            f"which this machine does not have for {device}. Leave search.int8 out."
        )


class Int8Linear(nn.Module):
    """x Wᵀ + b, with a scale for each row of W and one for each row of x.

    The sums are of whole numbers, so that no row depends on how many others there are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / _MOST  # (out,)
        rounded = (weight / scales.unsqueeze(1)).round().to(torch.int8)
        self.width, self.out = weight.size(1), weight.size(0)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded.contiguous(), None)
        self.scales, self.zeros = scales, torch.zeros(self.out, dtype=torch.long)
        self.bias = None if bias is None else bias.detach().float()

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, self.width).float()
        largest = torch.maximum(rows.amax(dim=1, keepdim=True), -rows.amin(dim=1, keepdim=True))  # (N, 1)
        largest = largest.clamp_(min=torch.finfo(torch.float32).tiny)
        # From −127 … 127 to 1 … 255: the instruction takes one side without a sign.
        rounded = (rows * (_MOST / largest)).round_().add_(_MOST + 1).to(torch.uint8)
        found: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1 / _MOST, _MOST + 1, self.packed, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none",
            [], "",
        )  # fmt: skip
        found.mul_(largest)
        if self.bias is not None:
            found.add_(self.bias)
        return found.view(*inputs.shape[:-1], self.out)


class Int8OutputLayer(OutputLayer):
    """The output layer with its matrix in 8 bits; `fit` has been seen to before."""

    def __init__(self, layer: OutputLayer) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias, self.fit = layer.weight, layer.bias, layer.fit
        self.small = Int8Linear(layer.weight)

    def product(self, features: Tensor) -> Tensor:
        found: Tensor = self.small(features)
        return found
