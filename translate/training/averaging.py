"""The mean of several checkpoints' weights, which often scores better than any of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from translate.checkpoint import Checkpoint


def average_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean, summed in float64 so that the order does not matter to float32."""
    sums: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in checkpoint.weights().items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / len(checkpoints)).to(torch.float32) for name, total in sums.items()}
