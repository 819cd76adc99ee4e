"""Recurrent layers cut where it pays: input products for all steps at once, only what needs the past in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from translate.models.dropout import Dropout, dropout
from translate.models.layout import Laid, linear, summed_over_rows, times
from translate.models.loops import Product, Room, SharedWeight, one_gradient, room_of, tanh_

Hidden = tuple[Tensor, ...]  # (B, H), and for an LSTM its cell (B, H)


# -- cells -------------------------------------------------------------------------------------------------------------


class _GruUpdate(Function):
    """The gates of a GRU with their derivative written out: a third of the operations that autograd would take."""

    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, hidden_gates: Tensor, before: Tensor) -> Tensor:
        after, *kept = _gru_forward(input_gates, hidden_gates, before)
        ctx.save_for_backward(*kept, before)
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        both, candidate, new, before = ctx.saved_tensors
        rows, width = before.shape
        from_input, from_hidden = grad.new_empty(2, rows, 3 * width)
        kept = _gru_step_backward(grad, both, candidate, new, before, from_input, from_hidden)
        return from_input, from_hidden, kept


class _GruStep(Function):
    """The same with the recurrent product, as a step of a loop: what it leaves for the weight lies side by side.

    `token` and `steps` are what the loop shares of the product.
    """

    @staticmethod
    def forward(
        ctx: Any, input_gates: Tensor, before: Tensor, token: Tensor, steps: SharedWeight, room: Room
    ) -> Tensor:
        after, *kept = _gru_forward(input_gates, steps.forwards(before), before)
        ctx.save_for_backward(*kept, before)
        ctx.steps, ctx.room, ctx.place = steps, room, room.place(len(before))
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        both, candidate, new, before = ctx.saved_tensors
        from_input, from_hidden = ctx.room.at(ctx.place, 3 * before.size(1), grad)
        kept = _gru_step_backward(grad, both, candidate, new, before, from_input, from_hidden)
        ctx.steps.leave(before, from_hidden)
        return from_input, kept.add_(ctx.steps.backwards(from_hidden)), None, None, None


def _gru_forward(input_gates: Tensor, hidden_gates: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The state after a step (B, H), and what its derivative needs: r and z (B, 2H), the recurrent share of n, n."""
    width = before.size(1)
    both = (input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width]).sigmoid_()  # (B, 2H)
    candidate = hidden_gates[:, 2 * width :]  # (B, H)
    new = tanh_(torch.addcmul(input_gates[:, 2 * width :], both[:, :width], candidate))  # (B, H)
    return torch.lerp(new, before, both[:, width:]), both, candidate, new  # (1 − z) n + z h


def _gru_step_backward(
    grad: Tensor, both: Tensor, candidate: Tensor, new: Tensor, before: Tensor, from_input: Tensor, from_hidden: Tensor
) -> Tensor:
    """Gradients of both kinds of gates into `from_input` and `from_hidden` (B, 3H); gives z · grad."""
    width = before.size(1)
    kept = _gru_backward(grad, both, candidate, new, before, from_input, from_hidden[:, 2 * width :])
    from_hidden[:, : 2 * width] = from_input[:, : 2 * width]
    return kept


def _gru_backward(
    grad: Tensor, both: Tensor, candidate: Tensor, new: Tensor, before: Tensor, gates: Tensor, inner: Tensor
) -> Tensor:
    """Gradients of the gates r, z, n into `gates` (B, 3H), of the recurrent share of n into `inner`; gives z · grad."""
    width = before.size(1)
    reset, update = both[:, :width], both[:, width:]
    of_reset, of_update, of_new = gates[:, :width], gates[:, width : 2 * width], gates[:, 2 * width :]
    kept = grad * update
    torch.ops.aten.tanh_backward.grad_input(grad - kept, new, grad_input=of_new)
    torch.mul(of_new, reset, out=inner)
    torch.ops.aten.sigmoid_backward.grad_input(of_new * candidate, reset, grad_input=of_reset)
    torch.ops.aten.sigmoid_backward.grad_input((before - new).mul_(grad), update, grad_input=of_update)
    return kept


def gru_update(input_gates: Tensor, hidden_gates: Tensor, hidden: Hidden, norm: nn.LayerNorm | None) -> Hidden:
    """r, z, n as in Cho et al. 2014, with the reset gate after the recurrent product as cuDNN has it."""
    dtype = input_gates.dtype
    return (_GruUpdate.apply(input_gates, hidden_gates.to(dtype), hidden[0].to(dtype)),)  # type: ignore[no-untyped-call]


class _GruUnrolled(Function):
    """All steps of a GRU whose inputs are known, as torch's own but with weight gradients formed once.

    inputs (T, B, E), start (B, H), weights as torch has them, and these laid out if they are -> states (T, B, H).
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, start: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor,
        laid_ih: Laid | None = None, laid_hh: Laid | None = None,
    ) -> Tensor:  # fmt: skip
        steps, rows, width = inputs.size(0), *start.shape
        recurrent = laid_hh or Laid(weight_hh)
        flat = inputs.flatten(0, 1)
        gates = times(flat, weight_ih, bias_ih) if laid_ih is None else laid_ih(flat, bias_ih)  # (T · B, 3H)
        gates = gates.view(steps, rows, 3 * width)  # of which r, z and n are made in place
        states, candidates = inputs.new_empty(steps + 1, rows, width), inputs.new_empty(steps, rows, width)
        before = states[0].copy_(start)
        for both, new, candidate, after in zip(
            gates[..., : 2 * width].unbind(0), gates[..., 2 * width :].unbind(0), candidates.unbind(0),
            states[1:].unbind(0), strict=True,
        ):  # fmt: skip
            hidden_gates = recurrent(before, bias_hh)  # (B, 3H)
            both.add_(hidden_gates[:, : 2 * width]).sigmoid_()
            candidate.copy_(hidden_gates[:, 2 * width :])
            tanh_(new.addcmul_(both[:, :width], candidate))
            before = torch.lerp(new, before, both[:, width:], out=after)
        ctx.save_for_backward(inputs, gates, candidates, states, weight_ih, weight_hh)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, gates, candidates, states, weight_ih, weight_hh = ctx.saved_tensors
        steps, rows, width = candidates.shape
        # Side by side: the recurrent share of n, then r, z, n, so that both products read neighbours.
        grads = grad.new_empty(steps, rows, 4 * width)
        ordered = torch.cat([weight_hh[2 * width :], weight_hh[: 2 * width]])  # (3H, H), in this order
        recurrent = Laid(ordered.t())
        below = grad.new_zeros(rows, width)
        for t in range(steps - 1, -1, -1):
            kept = _gru_backward(
                grad[t] + below, gates[t, :, : 2 * width], candidates[t], gates[t, :, 2 * width :], states[t],
                grads[t, :, width:], grads[t, :, :width],
            )  # fmt: skip
            below = recurrent(grads[t, :, : 3 * width], plus=kept)
        flat = grads.view(steps * rows, 4 * width)
        from_input, before = flat[:, width:], states[:-1].flatten(0, 1)
        of_hh = summed_over_rows(flat[:, : 3 * width], before)  # (3H, H), in the order n, r, z
        sums = flat.sum(dim=0)  # (4H,)
        return (
            times(from_input, weight_ih.t()).view_as(inputs) if ctx.needs_input_grad[0] else None,
            below,
            summed_over_rows(from_input, inputs.flatten(0, 1)),
            torch.cat([of_hh[width:], of_hh[:width]]),
            sums[width:],
            torch.cat([sums[width : 3 * width], sums[:width]]),
            None,
            None,
        )


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
        self.input = Product(input_width, gates)
        self.extra = Product(extra_width, gates, bias=False) if extra_width else None
        self.recurrent = Product(width, gates)
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

    def hoist(self, inputs: Tensor, read: bool = False) -> Tensor:
        """The share of the gates that comes from the inputs: (…, E) -> (…, gates · H).

        With `read` the inputs have been through the matrix already: (…, gates · H) -> (…, gates · H).
        """
        gates = inputs + self.input.bias if read else self.input(inputs)
        return gates if self.extra is not None else self._normed(gates)

    def step(
        self, gates: Tensor, extra: Tensor | None, hidden: Hidden, mask: Tensor | None = None, read: bool = False
    ) -> Hidden:
        """One step from hoisted gates (B, gates · H) and extra (B, X), or with `read` what its matrix makes of it.

        `mask` (B, H) drops in the recurrence.
        """
        if self.extra is not None:
            assert extra is not None
            gates = self._normed(gates + (extra if read else self.extra(extra)))
        return self._advance(gates, hidden, mask)

    def unroll(self, inputs: Tensor, hidden: Hidden, mask: Tensor | None = None) -> Tensor:
        """All steps (B, T, E + X) -> (B, T, H), in one call where neither norm nor mask stands in its way."""
        if self.input_norm is None and mask is None and not self._lacks_kernel(inputs):
            return self._fused(inputs, hidden)
        states = []
        with one_gradient():
            for gates in self._normed(self._input_gates(inputs)).unbind(dim=1):
                hidden = self._advance(gates, hidden, mask)
                states.append(hidden[0])
        return torch.stack(states, dim=1)

    def _input_gates(self, inputs: Tensor) -> Tensor:
        """What all that is known beforehand gives to the gates: (B, T, E + X) -> (B, T, gates · H)."""
        if self.extra is None:
            return self.input(inputs)
        return linear(inputs, self.torch_weights()[0], self.input.bias)

    def _normed(self, gates: Tensor) -> Tensor:
        return gates if self.input_norm is None else self.input_norm(gates)

    def _advance(self, gates: Tensor, hidden: Hidden, mask: Tensor | None) -> Hidden:
        """One step from all that the inputs give to the gates."""
        room = room_of(self, hidden[0])  # None where no gradient is asked for, as with products in 8 bits
        if room is not None and self.kind == "gru" and self.recurrent_norm is None and mask is None:
            shared = self.recurrent.shared(hidden[0])
            if shared is not None:
                return (_GruStep.apply(gates, hidden[0], *shared, room),)  # type: ignore[no-untyped-call]
        recurrent = self.recurrent(hidden[0] if mask is None else hidden[0] * mask)
        if self.recurrent_norm is not None:
            recurrent = self.recurrent_norm(recurrent)
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
        if self.kind == "gru" and inputs.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            laid = self.input.laid if self.extra is None else None, self.recurrent.laid
            unrolled: Tensor = _GruUnrolled.apply(  # type: ignore[no-untyped-call]
                inputs.transpose(0, 1).contiguous(), hidden[0], *weights, *laid
            )
            return unrolled.transpose(0, 1)
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
        self.dropout = Dropout(dropout)

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
        if not self.training or not self.dropout.share:
            return ()
        ones = like.new_ones(like.size(0), self.width)
        return tuple(dropout(ones, self.dropout.share) for _ in range(2 * self.num_layers - 1))

    def step(
        self, gates: Tensor, extra: Tensor | None, hidden: Hidden, masks: Hidden = (), read: bool = False
    ) -> Hidden:
        """One step of all layers, from hoisted gates (B, gates · H) and extra (B, X) to the next state."""
        lowest = self.first.step(gates, extra, hidden[:: self.num_layers], masks[0] if masks else None, read)
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
