"""Recurrent layers cut where it pays: input products for all steps at once, only what needs the past in a loop."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GRUStack(nn.Module):
    """Layers of GRU cells (the cuDNN variant), the first of which reads [input; extra].

    `input` is known for all steps beforehand, as embeddings are under teacher forcing; `extra` (a context, a fed
    vector) is known only when its step comes. Going step by step or through `unroll` gives the same states.
    """

    def __init__(self, input_width: int, extra_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.input_width = input_width
        self.width = width
        widths = [input_width + extra_width] + [width] * (layers - 1)
        self.cells = nn.ModuleList(nn.GRUCell(input_width, width) for input_width in widths)
        self.dropout = nn.Dropout(dropout)

    @property
    def num_layers(self) -> int:
        return len(self.cells)

    def hoist(self, inputs: Tensor) -> Tensor:
        """The share of the first layer's gates that comes from the inputs: (…, E) -> (…, 3H)."""
        first = cast(nn.GRUCell, self.cells[0])
        return F.linear(inputs, first.weight_ih[:, : self.input_width], first.bias_ih)

    def step(self, gates: Tensor, extra: Tensor, hidden: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from hoisted gates (B, 3H), extra (B, X) and L × (B, H) to the next L × (B, H)."""
        first = cast(nn.GRUCell, self.cells[0])
        gates = gates + F.linear(extra, first.weight_ih[:, self.input_width :])  # (B, 3H)
        states = [_gru_update(gates, F.linear(hidden[0], first.weight_hh, first.bias_hh), hidden[0])]
        for cell, previous in zip(list(self.cells)[1:], hidden[1:], strict=True):
            states.append(cell(self.dropout(states[-1]), previous))
        return tuple(states)

    def unroll(self, inputs: Tensor, hidden: tuple[Tensor, ...]) -> Tensor:
        """All steps in one call, where the inputs (B, T, E + X) are known: the top layer's states (B, T, H)."""
        weights: list[Tensor] = []
        for cell in self.cells:
            weights += cell.parameters()  # in the order torch.gru wants: weight_ih, weight_hh, bias_ih, bias_hh
        start = torch.stack(hidden)  # (L, B, H)
        dropout = self.dropout.p if self.training else 0.0
        states, _ = torch.gru(inputs, start, weights, True, self.num_layers, dropout, self.training, False, True)
        return states


def _gru_update(input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    """r, z, n as in Cho et al. 2014, with the reset gate after the recurrent product as cuDNN has it."""
    width = hidden.size(1)
    both = torch.sigmoid(input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width])  # (B, 2H)
    reset, update = both[:, :width], both[:, width:]
    new = torch.tanh(torch.addcmul(input_gates[:, 2 * width :], reset, hidden_gates[:, 2 * width :]))
    return torch.lerp(new, hidden.to(new.dtype), update)  # (B, H) = (1 − z) n + z h
