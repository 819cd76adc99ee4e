"""Recurrent layers: the product with the inputs is formed for all steps at once, the rest in a loop."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from translate import kernels
from translate.kernels import FastLinear
from translate.models.layers import Dropout, dropout

LayerState = tuple[Tensor, ...]  # of one layer: h (B, H), and for an LSTM its cell c (B, H)
Hidden = tuple[LayerState, ...]  # of all layers, the lowest first


class Cell:
    """How a recurrent unit computes its next state from the gates."""

    num_gates: ClassVar[int]
    num_states: ClassVar[int]

    @staticmethod
    def update(gate_inputs: Tensor, recurrent: Tensor, state: LayerState, norm: nn.LayerNorm | None) -> LayerState:
        """From W x and U h of all gates, (B, gates · H) each."""
        raise AssertionError("every cell defines its update")


class GRUCell(Cell):
    """Cho et al. 2014, eq. 5-8, with the reset gate after the recurrent product as cuDNN has it.

    r = σ(W_r x + U_r h)
    z = σ(W_z x + U_z h)
    n = tanh(W_n x + b + r ⊙ (U_n h + c))
    h' = (1 − z) ⊙ n + z ⊙ h
    """

    num_gates, num_states = 3, 1  # r, z, n; h

    @staticmethod
    def update(gate_inputs: Tensor, recurrent: Tensor, state: LayerState, norm: nn.LayerNorm | None) -> LayerState:
        (h,) = state
        input_r, input_z, input_n = gate_inputs.chunk(3, dim=1)  # (B, H) each
        recurrent_r, recurrent_z, recurrent_n = recurrent.to(gate_inputs.dtype).chunk(3, dim=1)
        r = torch.sigmoid(input_r + recurrent_r)
        z = torch.sigmoid(input_z + recurrent_z)
        n = torch.tanh(input_n + r * recurrent_n)
        return (torch.lerp(n, h.to(n.dtype), z),)  # (1 − z) ⊙ n + z ⊙ h


class LSTMCell(Cell):
    """Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000.

    i, f, o = σ(W_i x + U_i h), σ(W_f x + U_f h), σ(W_o x + U_o h)
    c' = f ⊙ c + i ⊙ tanh(W_g x + U_g h)
    h' = o ⊙ tanh(c')
    """

    num_gates, num_states = 4, 2  # i, f, g, o; h and c

    @staticmethod
    def update(gate_inputs: Tensor, recurrent: Tensor, state: LayerState, norm: nn.LayerNorm | None) -> LayerState:
        _, c = state
        i, f, g, o = (gate_inputs + recurrent).chunk(4, dim=1)  # (B, H) each
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c if norm is None else norm(c)), c


CELLS: dict[str, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell}


class RecurrentLayer(nn.Module):
    """One recurrent layer that reads inputs x, and with `extra` also e: gates = W x + V e + b and U h + c.

    The inputs are known for all steps beforehand, as embeddings are under teacher forcing; e (a context, a fed vector)
    is known only at its step. With `norm` each product is normalised before the gates are formed, and the
    LSTM's cell too (Ba et al. 2016, eq. 20-22).
    """

    def __init__(self, input_width: int, extra_width: int, width: int, cell: str, norm: bool) -> None:
        super().__init__()
        self.kind, self.cell, self.width = cell, CELLS[cell], width
        gates = self.cell.num_gates * width
        self.input = FastLinear(input_width, gates)  # W, b
        self.extra = FastLinear(extra_width, gates, bias=False) if extra_width else None  # V
        self.recurrent = FastLinear(width, gates)  # U, c
        self.input_norm = nn.LayerNorm(gates) if norm else None
        self.recurrent_norm = nn.LayerNorm(gates) if norm else None
        self.cell_norm = nn.LayerNorm(width) if norm and cell == "lstm" else None

    def initialise(self) -> None:
        """Orthogonal recurrent matrices for each gate, and a bias of 1 for the LSTM's forget gate."""
        for linear in filter(None, (self.input, self.extra)):
            for gate in linear.weight.data.chunk(self.cell.num_gates):
                nn.init.xavier_uniform_(gate)
        for gate in self.recurrent.weight.data.chunk(self.cell.num_gates):
            nn.init.orthogonal_(gate)
        if self.kind == "lstm":
            self.input.bias.data[self.width : 2 * self.width] = 1.0

    def input_gates(self, inputs: Tensor) -> Tensor:
        """W x + b, for one step or for all: (…, E) -> (…, gates · H)."""
        return self._complete(self.input(inputs))

    def input_gates_of(self, projected: Tensor) -> Tensor:
        """W x + b from W x: (…, gates · H) -> (…, gates · H)."""
        return self._complete(projected + self.input.bias)

    def add_extra(self, gate_inputs: Tensor, projected: Tensor) -> Tensor:
        """W x + b + V e from its two parts, (B, gates · H) each."""
        return self._normed(gate_inputs + projected)

    def step(self, gate_inputs: Tensor, state: LayerState, mask: Tensor | None = None) -> LayerState:
        """One step from W x + b + V e (B, gates · H); `mask` (B, H) drops units of the recurrence."""
        recurrent = self.recurrent(state[0] if mask is None else state[0] * mask)
        if self.recurrent_norm is not None:
            recurrent = self.recurrent_norm(recurrent)
        return self.cell.update(gate_inputs, recurrent, state, self.cell_norm)

    def unroll(self, inputs: Tensor, state: LayerState, mask: Tensor | None = None) -> Tensor:
        """All steps, if inputs and extra [x; e] are known: (B, T, E + X) -> (B, T, H)."""
        if self.input_norm is None and mask is None:
            if self.kind == "gru":
                return kernels.gru(inputs, state[0], self.input, self.recurrent, self.extra)
            return kernels.lstm(inputs, state[0], state[1], self.input, self.recurrent, self.extra)
        weight = self.input.weight if self.extra is None else torch.cat([self.input.weight, self.extra.weight], dim=1)
        states = []
        with kernels.share_gradients():
            for gate_inputs in self._normed(kernels.linear(inputs, weight, self.input.bias)).unbind(dim=1):
                state = self.step(gate_inputs, state, mask)
                states.append(state[0])
        return torch.stack(states, dim=1)

    def start(self, like: Tensor) -> LayerState:
        """Zeros, for the rows of `like` (B, …)."""
        return tuple(like.new_zeros(like.size(0), self.width) for _ in range(self.cell.num_states))

    def _complete(self, gates: Tensor) -> Tensor:
        """Normalise gates, unless V e has to be added to them first."""
        return gates if self.extra is not None else self._normed(gates)

    def _normed(self, gates: Tensor) -> Tensor:
        return gates if self.input_norm is None else self.input_norm(gates)


class RecurrentStack(nn.Module):
    """Layers on top of each other; the lowest reads [x; e].

    Variational dropout takes `masks`: one (B, H) for the recurrence of each layer, then one for the input of each layer
    except the lowest.
    """

    def __init__(
        self, input_width: int, extra_width: int, width: int, layers: int, dropout: float, cell: str, norm: bool
    ) -> None:
        super().__init__()
        self.width, self.num_layers, self.num_tensors = width, layers, layers * CELLS[cell].num_states
        self.layers = nn.ModuleList(
            RecurrentLayer(input_width if index == 0 else width, 0 if index else extra_width, width, cell, norm)
            for index in range(layers)
        )
        self.dropout = Dropout(dropout)

    def layer(self, index: int) -> RecurrentLayer:
        layer = self.layers[index]
        assert isinstance(layer, RecurrentLayer)
        return layer

    @property
    def lowest(self) -> RecurrentLayer:
        return self.layer(0)

    def hidden(self, tensors: Tensor) -> Hidden:
        """The states of all layers, cut from one table (B, L·H), or (B, 2L·H) with all cells after all h."""
        parts = tensors.chunk(self.num_tensors, dim=-1)  # (B, H) each
        return tuple(parts[index :: self.num_layers] for index in range(self.num_layers))

    def masks(self, like: Tensor) -> tuple[Tensor, ...]:
        """Masks of variational dropout (Gal and Ghahramani 2016) for the rows of `like`; none outside of training."""
        if not self.training or not self.dropout.share:
            return ()
        ones = like.new_ones(like.size(0), self.width)
        return tuple(dropout(ones, self.dropout.share) for _ in range(2 * self.num_layers - 1))

    def step(self, gate_inputs: Tensor, hidden: Hidden, masks: tuple[Tensor, ...] = ()) -> Hidden:
        """One step of all layers, from W x + b + V e of the lowest (B, gates · H)."""
        return self.step_above(self.lowest.step(gate_inputs, hidden[0], masks[0] if masks else None), hidden, masks)

    def step_above(self, lowest: LayerState, hidden: Hidden, masks: tuple[Tensor, ...] = ()) -> Hidden:
        """One step of the layers above the lowest, whose next state is given."""
        states = [lowest]
        for index in range(1, self.num_layers):
            below, layer = states[-1][0], self.layer(index)
            below = below * masks[self.num_layers + index - 1] if masks else self.dropout(below)
            mask = masks[index] if masks else None
            states.append(layer.step(layer.input_gates(below), hidden[index], mask))
        return tuple(states)

    def unroll(self, inputs: Tensor, hidden: Hidden, masks: tuple[Tensor, ...] = ()) -> Tensor:
        """All steps, if the inputs (B, T, E + X) are known: the top layer's states (B, T, H)."""
        states = inputs
        for index in range(self.num_layers):
            if index and masks:
                states = states * masks[self.num_layers + index - 1].unsqueeze(1)
            elif index:
                states = self.dropout(states)
            states = self.layer(index).unroll(states, hidden[index], masks[index] if masks else None)
        return states
