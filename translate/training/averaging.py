"""Two averages of weights, over checkpoints and over all updates; they often score better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from translate.run.checkpoint import Checkpoint

_RAW = "/raw"  # suffix of the names of the raw weights, with which training continues


def average_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean, summed in float64 so that the order does not change the float32 result."""
    sums: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in checkpoint.weights().items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / len(checkpoints)).to(torch.float32) for name, total in sums.items()}


class MovingAverage:
    """An exponential moving average of a model's weights, which starts from them (Polyak & Juditsky 1992)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights: list[Tensor] = list(model.parameters())
        self._means = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, count: int) -> None:
        """Add the weights after update `count` (from 1); the decay is smaller in the first updates."""
        decay = min(self.decay, (1 + count) / (10 + count))
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the model temporarily; by copying, because others hold the parameters' memory."""
        raw = [weight.detach().clone() for weight in self._weights]
        self._fill(self._means)
        try:
            yield
        finally:
            self._fill(raw)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._weights, values)


def named_raw(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Raw weights under the names they have among the optimizer's tensors; the model's file holds the average."""
    return {f"{name}{_RAW}": tensor for name, tensor in weights.items()}


def split_raw(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Invert `named_raw`: the raw weights, and all other tensors."""
    raw = {name.removesuffix(_RAW): tensor for name, tensor in tensors.items() if name.endswith(_RAW)}
    return raw, {name: tensor for name, tensor in tensors.items() if not name.endswith(_RAW)}
