"""Recurrent layers cut where it pays: input products for all steps at once, only what needs the past in a loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GRUStack(nn.Module):
    """Layers of GRU cells (the cuDNN variant), the first of which reads [input; extra].

    `input` is known for all steps beforehand, as embeddings are under teacher forcing; `extra` (a context, a fed
    vector) is known only when its step comes. Going step by step or through `unroll` gives the same states.
    """

    def __init__(self, input_width: int, extra_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        # The first layer's matrix in two, because a slice of one would cost a full-sized gradient at every step.
        self.input = nn.Linear(input_width, 3 * width)
        self.extra = nn.Linear(extra_width, 3 * width, bias=False) if extra_width else None
        self.recurrent = nn.Linear(width, 3 * width)
        self.upper = nn.ModuleList(nn.GRUCell(width, width) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    @property
    def num_layers(self) -> int:
        return 1 + len(self.upper)

    def hoist(self, inputs: Tensor) -> Tensor:
        """The share of the first layer's gates that comes from the inputs: (…, E) -> (…, 3H)."""
        return self.input(inputs)

    def step(self, gates: Tensor, extra: Tensor, hidden: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from hoisted gates (B, 3H), extra (B, X) and L × (B, H) to the next L × (B, H)."""
        if self.extra is not None:
            gates = gates + self.extra(extra)  # (B, 3H)
        states = [_gru_update(gates, self.recurrent(hidden[0]), hidden[0])]
        for cell, previous in zip(self.upper, hidden[1:], strict=True):
            states.append(cell(self.dropout(states[-1]), previous))
        return tuple(states)

    def unroll(self, inputs: Tensor, hidden: tuple[Tensor, ...]) -> Tensor:
        """All steps in one call, where the inputs (B, T, E + X) are known: the top layer's states (B, T, H)."""
        start = torch.stack(hidden)  # (L, B, H)
        dropout = self.dropout.p if self.training else 0.0
        weights = self.torch_weights()
        states, _ = torch.gru(inputs, start, weights, True, self.num_layers, dropout, self.training, False, True)
        return states

    def torch_weights(self) -> list[Tensor]:
        """The parameters as torch's own GRU has them: weight_ih, weight_hh, bias_ih, bias_hh of each layer."""
        parts = [self.input.weight] + ([self.extra.weight] if self.extra is not None else [])
        weights = [torch.cat(parts, dim=1), self.recurrent.weight, self.input.bias, self.recurrent.bias]
        for cell in self.upper:
            weights += cell.parameters()
        return weights


def _gru_update(input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    """r, z, n as in Cho et al. 2014, with the reset gate after the recurrent product as cuDNN has it."""
    width = hidden.size(1)
    both = torch.sigmoid(input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width])  # (B, 2H)
    reset, update = both[:, :width], both[:, width:]
    new = torch.tanh(torch.addcmul(input_gates[:, 2 * width :], reset, hidden_gates[:, 2 * width :]))
    return torch.lerp(new, hidden.to(new.dtype), update)  # (B, H) = (1 − z) n + z h
