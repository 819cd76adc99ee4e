"""Recurrent layers cut where it pays: input products for all steps at once, only what needs the past in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Hidden = tuple[Tensor, ...]  # (B, H), and for an LSTM its cell (B, H)


def gru_update(input_gates: Tensor, hidden_gates: Tensor, hidden: Hidden, norm: nn.LayerNorm | None) -> Hidden:
    """r, z, n as in Cho et al. 2014, with the reset gate after the recurrent product as cuDNN has it."""
    (before,) = hidden
    width = before.size(1)
    both = torch.sigmoid(input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width])  # (B, 2H)
    reset, update = both[:, :width], both[:, width:]
    new = torch.tanh(torch.addcmul(input_gates[:, 2 * width :], reset, hidden_gates[:, 2 * width :]))
    return (torch.lerp(new, before.to(new.dtype), update),)  # (B, H) = (1 − z) n + z h


def lstm_update(input_gates: Tensor, hidden_gates: Tensor, hidden: Hidden, norm: nn.LayerNorm | None) -> Hidden:
    """i, f, g, o as in Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000."""
    cell = hidden[1]
    enter, keep, new, leave = (input_gates + hidden_gates).chunk(4, dim=1)  # (B, H) each
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
    seen = cell if norm is None else norm(cell)
    return torch.sigmoid(leave) * torch.tanh(seen), cell


class Cell(NamedTuple):
    """A recurrent unit: how many gates, how many tensors of state, and its update."""

    gates: int
    states: int
    update: Callable[[Tensor, Tensor, Hidden, nn.LayerNorm | None], Hidden]


CELLS: dict[str, Cell] = {"gru": Cell(3, 1, gru_update), "lstm": Cell(4, 2, lstm_update)}


class Layer(nn.Module):
    """One recurrent layer that reads [input; extra].

    `input` is known for all steps beforehand, as embeddings are under teacher forcing; `extra` (a context, a fed
    vector) is known only when its step comes. Going step by step or through `unroll` gives the same states.
    With `norm` each product is normalised before the gates are formed, the LSTM's cell too (Ba et al. 2016, eq. 20-22).
    """

    def __init__(self, input_width: int, extra_width: int, width: int, cell: str, norm: bool) -> None:
        super().__init__()
        self.kind, self.cell, self.width = cell, CELLS[cell], width
        gates = self.cell.gates * width
        # The matrix in two, because a slice of one would cost a full-sized gradient at every step.
        self.input = nn.Linear(input_width, gates)
        self.extra = nn.Linear(extra_width, gates, bias=False) if extra_width else None
        self.recurrent = nn.Linear(width, gates)
        self.input_norm = nn.LayerNorm(gates) if norm else None
        self.recurrent_norm = nn.LayerNorm(gates) if norm else None
        self.cell_norm = nn.LayerNorm(width) if norm and cell == "lstm" else None

    def initialise(self) -> None:
        """Orthogonal recurrent matrices gate by gate, and an LSTM that starts by remembering."""
        for product in filter(None, (self.input, self.extra)):
            for gate in product.weight.data.chunk(self.cell.gates):
                nn.init.xavier_uniform_(gate)
        for gate in self.recurrent.weight.data.chunk(self.cell.gates):
            nn.init.orthogonal_(gate)
        if self.kind == "lstm":
            self.input.bias.data[self.width : 2 * self.width] = 1.0

    def hoist(self, inputs: Tensor) -> Tensor:
        """The share of the gates that comes from the inputs: (…, E) -> (…, gates · H)."""
        return self.input(inputs)

    def step(self, gates: Tensor, extra: Tensor | None, hidden: Hidden, mask: Tensor | None = None) -> Hidden:
        """One step from hoisted gates (B, gates · H) and extra (B, X); `mask` (B, H) drops in the recurrence."""
        return self._advance(gates if self.extra is None else gates + self.extra(extra), hidden, mask)

    def unroll(self, inputs: Tensor, hidden: Hidden, mask: Tensor | None = None) -> Tensor:
        """All steps (B, T, E + X) -> (B, T, H), in one call where neither norm nor mask stands in its way."""
        if self.input_norm is None and mask is None and not self._lacks_kernel(inputs):
            return self._fused(inputs, hidden)
        states = []
        for gates in F.linear(inputs, self.torch_weights()[0], self.input.bias).unbind(dim=1):
            hidden = self._advance(gates, hidden, mask)
            states.append(hidden[0])
        return torch.stack(states, dim=1)

    def _advance(self, gates: Tensor, hidden: Hidden, mask: Tensor | None) -> Hidden:
        recurrent = self.recurrent(hidden[0] if mask is None else hidden[0] * mask)
        if self.input_norm is not None and self.recurrent_norm is not None:
            gates, recurrent = self.input_norm(gates), self.recurrent_norm(recurrent)
        return self.cell.update(gates, recurrent, hidden, self.cell_norm)

    def _lacks_kernel(self, inputs: Tensor) -> bool:
        """oneDNN has no LSTM in float16 (torch 2.13), which only tests of mixed precision ask for on a CPU."""
        return (
            self.kind == "lstm"
            and inputs.device.type == "cpu"
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") == torch.float16
        )

    def _fused(self, inputs: Tensor, hidden: Hidden) -> Tensor:
        start, weights = [part.unsqueeze(0) for part in hidden], self.torch_weights()
        if self.kind == "gru":
            states, _ = torch.gru(inputs, start[0], weights, True, 1, 0.0, self.training, False, True)
        else:
            states, _, _ = torch.lstm(inputs, start, weights, True, 1, 0.0, self.training, False, True)
        return states

    def torch_weights(self) -> list[Tensor]:
        """The parameters as torch's own GRU and LSTM have them: weight_ih, weight_hh, bias_ih, bias_hh."""
        parts = [self.input.weight] + ([self.extra.weight] if self.extra is not None else [])
        matrix = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        return [matrix, self.recurrent.weight, self.input.bias, self.recurrent.bias]

    def zeros(self, like: Tensor) -> Hidden:
        """The state before the first step, for the rows of `like` (B, …)."""
        return tuple(like.new_zeros(like.size(0), self.width) for _ in range(self.cell.states))


class Stack(nn.Module):
    """Layers on top of each other, the first of which reads [input; extra].

    A state is the L tensors (B, H) of the layers, for an LSTM followed by their L cells. Variational dropout takes
    `masks`: one (B, H) for the recurrence of each layer, then one for what each layer but the first reads.
    """

    def __init__(
        self, input_width: int, extra_width: int, width: int, layers: int, dropout: float, cell: str, norm: bool
    ) -> None:
        super().__init__()
        self.width, self.num_layers, self.num_tensors = width, layers, layers * CELLS[cell].states
        self.layers = nn.ModuleList(
            Layer(input_width if index == 0 else width, 0 if index else extra_width, width, cell, norm)
            for index in range(layers)
        )
        self.dropout = nn.Dropout(dropout)

    def _layer(self, index: int) -> Layer:
        layer = self.layers[index]
        assert isinstance(layer, Layer)
        return layer

    @property
    def first(self) -> Layer:
        return self._layer(0)

    def top(self, hidden: Hidden) -> Tensor:
        """The state (B, H) of the top layer."""
        return hidden[self.num_layers - 1]

    def hoist(self, inputs: Tensor) -> Tensor:
        """The share of the first layer's gates that comes from the inputs: (…, E) -> (…, gates · H)."""
        return self.first.hoist(inputs)

    def masks(self, like: Tensor) -> Hidden:
        """Masks of variational dropout (Gal and Ghahramani 2016) for the rows of `like`; none outside of training."""
        if not self.training or not self.dropout.p:
            return ()
        ones = like.new_ones(like.size(0), self.width)
        return tuple(F.dropout(ones, self.dropout.p) for _ in range(2 * self.num_layers - 1))

    def step(self, gates: Tensor, extra: Tensor | None, hidden: Hidden, masks: Hidden = ()) -> Hidden:
        """One step of all layers, from hoisted gates (B, gates · H) and extra (B, X) to the next state."""
        lowest = self.first.step(gates, extra, hidden[:: self.num_layers], masks[0] if masks else None)
        return self.step_above(lowest, hidden, masks)

    def step_above(self, lowest: Hidden, hidden: Hidden, masks: Hidden = ()) -> Hidden:
        """The step of the layers above the first, whose next state is `lowest`."""
        states = [lowest]
        for index in range(1, self.num_layers):
            below, layer = states[-1][0], self._layer(index)
            below = below * masks[self.num_layers + index - 1] if masks else self.dropout(below)
            mask = masks[index] if masks else None
            states.append(layer.step(layer.hoist(below), None, hidden[index :: self.num_layers], mask))
        return tuple(part for parts in zip(*states, strict=True) for part in parts)

    def unroll(self, inputs: Tensor, hidden: Hidden, masks: Hidden = ()) -> Tensor:
        """All steps, where the inputs (B, T, E + X) are known: the top layer's states (B, T, H)."""
        states = inputs
        for index in range(self.num_layers):
            if index and masks:
                states = states * masks[self.num_layers + index - 1].unsqueeze(1)
            elif index:
                states = self.dropout(states)
            states = self._layer(index).unroll(
                states, hidden[index :: self.num_layers], masks[index] if masks else None
            )
        return states
