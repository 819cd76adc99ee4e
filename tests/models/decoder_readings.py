"""A second reading of every recurrent decoder: torch's own cells, one step after the other.

Nothing here knows of the package: a decoder's parameters are read by their names, and only its attention is called,
which has a reading of its own in readings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

LayerState = tuple[Tensor, ...]  # of one layer: h (B, H), and for an LSTM its cell c (B, H)


def torch_weights(layer: Any) -> list[Tensor]:
    """The parameters as torch's own GRU and LSTM have them: weight_ih, weight_hh, bias_ih, bias_hh."""
    parts = [layer.input.weight] + ([layer.extra.weight] if layer.extra is not None else [])
    return [torch.cat(parts, dim=1), layer.recurrent.weight, layer.input.bias, layer.recurrent.bias]


class DecoderReading:
    """What a decoder computes; the method that bears its name is its step."""

    def __init__(self, decoder: Any, source: Any) -> None:
        self.d, self.source, self.kind = decoder, source, decoder.config.decoder.cell
        self.count = decoder.config.decoder.layers
        parts = torch.tanh(decoder.bridge(source.summary)).chunk(self.count * (1 if self.kind == "gru" else 2), dim=-1)
        self.states = [tuple(parts[index :: self.count]) for index in range(self.count)]  # of each layer
        self.cells = [self.cell(layer) for layer in decoder.stack.layers]
        self.fed = torch.zeros(len(source.memory), decoder.width, dtype=torch.float64)

    def cell(self, layer: Any) -> Callable[[Tensor, LayerState], LayerState]:
        """A layer as torch has it; takes and gives a tuple of state and, for an LSTM, cell."""
        weights = torch_weights(layer)

        def gru(inputs: Tensor, hidden: LayerState) -> LayerState:
            return (torch.gru_cell(inputs, hidden[0], *weights),)

        def lstm(inputs: Tensor, hidden: LayerState) -> LayerState:
            return torch.lstm_cell(inputs, hidden, *weights)

        return gru if self.kind == "gru" else lstm

    def attend(self, query: Tensor, t: int) -> tuple[Tensor, Tensor]:
        found = self.d.attention(query.unsqueeze(1), torch.full((len(query), 1), t), self.source)
        return found.context[:, 0], found.weights[:, 0]

    def climb(self, inputs: Tensor) -> None:
        """All layers, from the first layer's inputs."""
        for index, cell in enumerate(self.cells):
            self.states[index] = cell(inputs, self.states[index])
            inputs = self.states[index][0]

    @property
    def top(self) -> Tensor:
        return self.states[-1][0]

    def write(self, tgt_in: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Features (B, F) and weights (B, S) of every step."""
        step = getattr(self, self.d.config.decoder.kind)
        for t, token in enumerate(tgt_in.unbind(dim=1)):
            yield step(self.d.embed.table(token), t)

    def bahdanau(self, y: Tensor, t: int) -> tuple[Tensor, Tensor]:
        d = self.d
        context, weights = self.attend(self.top, t)
        self.climb(torch.cat([y, context], dim=-1))
        units = d.state_to_readout(self.top) + d.token_to_readout(y) + d.context_to_readout(context)
        return torch.maximum(units[:, 0::2], units[:, 1::2]), weights

    def luong(self, y: Tensor, t: int) -> tuple[Tensor, Tensor]:
        d = self.d
        if d.config.decoder.input_feeding:
            y = torch.cat([y, self.fed], dim=-1)
        self.climb(y)
        context, weights = self.attend(self.top, t)
        self.fed = torch.tanh(torch.cat([context, self.top], dim=-1) @ d.combine.weight.T)
        return self.fed, weights

    def conditional(self, y: Tensor, t: int) -> tuple[Tensor, Tensor]:
        d = self.d
        between = self.cells[0](y, self.states[0])
        context, weights = self.attend(between[0], t)
        self.states[0] = self.cell(d.second)(context, between)
        for index in range(1, self.count):
            self.states[index] = self.cells[index](self.states[index - 1][0], self.states[index])
        return torch.tanh(d.state_to_readout(self.top) + d.token_to_readout(y) + d.context_to_readout(context)), weights

    def tutorial(self, y: Tensor, t: int) -> tuple[Tensor, Tensor]:
        d = self.d
        context, weights = self.attend(torch.cat([y, self.top], dim=-1), t)
        matrix = torch.cat([d.combine_token.weight, d.combine_context.weight], dim=1)
        self.climb(torch.relu(torch.cat([y, context], dim=-1) @ matrix.T + d.combine_token.bias))
        return self.top, weights

    def plain(self, y: Tensor, t: int) -> tuple[Tensor, None]:
        d = self.d
        self.climb(torch.cat([y, self.source.summary], dim=-1))
        return torch.tanh(torch.cat([self.source.summary, self.top], dim=-1) @ d.combine.weight.T), None
