"""Recurrent encoders: one direction or both, GRU or LSTM."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from translate.config import EncoderConfig
from translate.models.encoders.base import Encoder
from translate.models.layers import dropout
from translate.models.recurrence import RecurrentLayer

SUPPORTS = ("layers", "residual", "layer_norm", "variational")  # what every recurrent encoder supports


class RecurrentEncoder(Encoder):
    """h_s = RNN(x_s, h_{s−1}) in each direction. Padding never enters a state: a direction starts at a real token."""

    cell: ClassVar[str]

    def __init__(self, input_width: int, config: EncoderConfig) -> None:
        super().__init__(input_width, config)
        widths = [input_width] + [self.output_width] * (config.layers - 1)
        self.backward_directions = (False, True) if self.width_multiple == 2 else (config.reverse,)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                RecurrentLayer(width, 0, config.width, self.cell, config.layer_norm) for _ in self.backward_directions
            )
            for width in widths
        )
        self.dropout = config.dropout

    def forward(self, embedded: Tensor, valid: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths = lengths.to(embedded.device)
        reversal = _reversal(lengths, embedded.size(1))  # (B · S,)
        memory, states = embedded, list[Tensor]()
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, nn.ModuleList)
            states = [
                self._read(direction, memory, reversal if backward else None)
                for direction, backward in zip(layer, self.backward_directions, strict=True)
            ]
            output = torch.cat(states, dim=-1)  # (B, S, D)
            memory = self._drop(memory + output if self.config.residual and index else output)
        rows, last = torch.arange(len(lengths), device=lengths.device), (lengths - 1).clamp(min=0)  # (B,)
        final = [
            direction[:, 0] if backward else direction[rows, last]  # (B, width)
            for direction, backward in zip(states, self.backward_directions, strict=True)
        ]
        return memory, torch.cat(final, dim=-1)

    def _read(self, layer: nn.Module, memory: Tensor, reversal: Tensor | None) -> Tensor:
        """One direction: (B, S, W) -> (B, S, width); each state is at the position that it has just read."""
        assert isinstance(layer, RecurrentLayer)
        inputs = memory if reversal is None else _reverse(memory, reversal)
        mask = None
        if self.config.variational and self.training and self.dropout:
            mask = dropout(memory.new_ones(memory.size(0), layer.width), self.dropout)  # (B, width)
        states = layer.unroll(inputs, layer.start(memory), mask)
        return states if reversal is None else _reverse(states, reversal)

    def _drop(self, states: Tensor) -> Tensor:
        """Dropout on (B, S, W); if variational, the same units are dropped at all positions of a sentence."""
        if not self.config.variational:
            return dropout(states, self.dropout, self.training)
        return states * dropout(torch.ones_like(states[:, :1]), self.dropout, self.training)


class GRUEncoder(RecurrentEncoder):
    """Reads from left to right; from right to left with `reverse` (Sutskever et al. 2014)."""

    name = "gru"
    formula = "h_s = GRU(x_s, h_{s−1})"
    paper = "Cho et al. 2014"
    when = "Half the cost of bigru; a state knows nothing about the words after it."
    supports = (*SUPPORTS, "reverse")
    cell = "gru"


class BiGRUEncoder(RecurrentEncoder):
    """Reads in both directions, so that each state depends on the whole sentence."""

    name = "bigru"
    formula = "m_s = [→h_s; ←h_s], GRU"
    paper = "Bahdanau et al. 2015, section 3.2"
    when = "The default for translation."
    supports = SUPPORTS
    reasons: ClassVar = {"reverse": "reads both ways already"}
    width_multiple, cell = 2, "gru"


class LSTMEncoder(RecurrentEncoder):
    """Reads from left to right with an LSTM; from right to left with `reverse`."""

    name = "lstm"
    formula = "h_s, c_s = LSTM(x_s, h_{s−1}, c_{s−1})"
    paper = "Sutskever et al. 2014; Hochreiter and Schmidhuber 1997"
    when = "Used in papers of 2014 and 2015 with several layers; a third more multiplications than gru."
    supports = (*SUPPORTS, "reverse")
    cell = "lstm"


class BiLSTMEncoder(RecurrentEncoder):
    """Reads in both directions with LSTMs."""

    name = "bilstm"
    formula = "m_s = [→h_s; ←h_s], LSTM"
    paper = "Graves and Schmidhuber 2005"
    when = "Like bigru, with a third more multiplications; counts better over long distances."
    supports = SUPPORTS
    reasons: ClassVar = {"reverse": "reads both ways already"}
    width_multiple, cell = 2, "lstm"


def _reversal(lengths: Tensor, size: int) -> Tensor:
    """The order (B · S) that reverses the real positions of each row and keeps padding in place."""
    positions = torch.arange(size, device=lengths.device).unsqueeze(0)  # (1, S)
    mirrored = lengths.unsqueeze(1) - 1 - positions  # (B, S)
    rows = torch.arange(len(lengths), device=lengths.device).unsqueeze(1)  # (B, 1)
    return (rows * size + torch.where(mirrored >= 0, mirrored, positions)).flatten()


def _reverse(states: Tensor, reversal: Tensor) -> Tensor:
    """Reverse each sentence of (B, S, W)."""
    return states.flatten(0, 1).index_select(0, reversal).view(states.shape)
