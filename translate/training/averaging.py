"""Two means of weights that often score better than any of them: over checkpoints, and over all updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from translate.run.checkpoint import Checkpoint

_RAW = "/raw"  # ends the names of the weights that training goes on with


def average_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean, summed in float64 so that the order does not matter to float32."""
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
        """Take in the weights after update `count` (from 1); a young average forgets its start faster."""
        decay = min(self.decay, (1 + count) / (10 + count))
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the model for a while; copied, because others hold on to the parameters' memory."""
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
    """Weights under the names they have beside the optimizer's tensors, where the model's place is the average's."""
    return {f"{name}{_RAW}": tensor for name, tensor in weights.items()}


def split_raw(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights that `named_raw` named, and all other tensors."""
    raw = {name.removesuffix(_RAW): tensor for name, tensor in tensors.items() if name.endswith(_RAW)}
    return raw, {name: tensor for name, tensor in tensors.items() if not name.endswith(_RAW)}
