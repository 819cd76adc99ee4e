"""Recurrent units: a GRU with an explicit derivative, in a third of autograd's operations; torch's own LSTM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from translate.kernels import reference
from translate.kernels.dispatch import kernel
from translate.kernels.matmul import PackedWeight, linear_no_grad, weight_gradient
from translate.kernels.shared_gradients import FastLinear

_MINUS_ONE = torch.tensor(-1.0)
_HALF = torch.float16


@kernel(reference.gru)
def gru(inputs: Tensor, start: Tensor, input: FastLinear, recurrent: FastLinear, extra: FastLinear | None) -> Tensor:
    """All states, for inputs that are known beforehand: (B, T, E), (B, H) -> (B, T, H).

    `extra`, if given, reads the last entries of the inputs.
    """
    weight = input.weight if extra is None else torch.cat([input.weight, extra.weight], dim=1)  # (3H, E)
    if inputs.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        weights = [weight, recurrent.weight, input.bias, recurrent.bias]
        states: Tensor = torch.gru(inputs, start.unsqueeze(0), weights, True, 1, 0.0, True, False, True)[0]
        return states
    packed = input.packed if extra is None else None, recurrent.packed
    unrolled: Tensor = _GruUnrolled.apply(  # type: ignore[no-untyped-call]
        inputs.transpose(0, 1).contiguous(), start, weight, recurrent.weight, input.bias, recurrent.bias, *packed
    )
    return unrolled.transpose(0, 1)


@kernel(reference.lstm)
def lstm(
    inputs: Tensor, start: Tensor, cell: Tensor, input: FastLinear, recurrent: FastLinear, extra: FastLinear | None
) -> Tensor:
    """All states of an LSTM: inputs (B, T, E), start and cell (B, H) -> (B, T, H)."""
    if inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == _HALF:
        return reference.lstm(inputs, start, cell, input, recurrent, extra)  # oneDNN has none in float16 (torch 2.13)
    weight = input.weight if extra is None else torch.cat([input.weight, extra.weight], dim=1)  # (4H, E)
    weights = [weight, recurrent.weight, input.bias, recurrent.bias]
    states: Tensor = torch.lstm(
        inputs, [start.unsqueeze(0), cell.unsqueeze(0)], weights, True, 1, 0.0, True, False, True
    )[0]
    return states


def tanh_(values: Tensor) -> Tensor:
    """tanh in place; on a CPU as 2 σ(2x) − 1, which takes torch a quarter of the time and is exact to 1e-7."""
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return values.tanh_()
    return torch.add(_MINUS_ONE, values.mul_(2).sigmoid_(), alpha=2, out=values)


class _GruUnrolled(Function):
    """All steps of a GRU whose inputs are known; each weight gradient is one product for all steps.

    inputs (T, B, E), start (B, H), weights as in torch.nn.GRU, and packed ones if any -> states (T, B, H).
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, start: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor,
        packed_ih: PackedWeight | None, packed_hh: PackedWeight | None,
    ) -> Tensor:  # fmt: skip
        steps, rows, width = inputs.size(0), *start.shape
        recurrent = packed_hh or PackedWeight(weight_hh)
        flat = inputs.flatten(0, 1)
        gates = linear_no_grad(flat, weight_ih, bias_ih) if packed_ih is None else packed_ih(flat, bias_ih)
        gates = gates.view(steps, rows, 3 * width)  # r, z and n are computed in place
        states, candidates = inputs.new_empty(steps + 1, rows, width), inputs.new_empty(steps, rows, width)
        before = states[0].copy_(start)
        for reset_update, new, candidate, after in zip(
            gates[..., : 2 * width].unbind(0), gates[..., 2 * width :].unbind(0), candidates.unbind(0),
            states[1:].unbind(0), strict=True,
        ):  # fmt: skip
            recurrent_gates = recurrent(before, bias_hh)  # (B, 3H)
            reset_update.add_(recurrent_gates[:, : 2 * width]).sigmoid_()
            candidate.copy_(recurrent_gates[:, 2 * width :])
            tanh_(new.addcmul_(reset_update[:, :width], candidate))
            before = torch.lerp(new, before, reset_update[:, width:], out=after)
        ctx.save_for_backward(inputs, gates, candidates, states, weight_ih, weight_hh)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, gates, candidates, states, weight_ih, weight_hh = ctx.saved_tensors
        steps, rows, width = candidates.shape
        # In one row: the recurrent part of n, then r, z, n, so that both products read contiguous columns.
        grads = grad.new_empty(steps, rows, 4 * width)
        ordered = torch.cat([weight_hh[2 * width :], weight_hh[: 2 * width]])  # (3H, H), in this order
        recurrent = PackedWeight(ordered.t())
        by_before = grad.new_zeros(rows, width)
        for t in range(steps - 1, -1, -1):
            kept = _gate_gradients(
                grad[t] + by_before, gates[t, :, : 2 * width], candidates[t], gates[t, :, 2 * width :], states[t],
                grads[t, :, width:], grads[t, :, :width],
            )  # fmt: skip
            by_before = recurrent(grads[t, :, : 3 * width], plus=kept)
        flat = grads.view(steps * rows, 4 * width)
        by_input, before = flat[:, width:], states[:-1].flatten(0, 1)
        by_hh = weight_gradient(flat[:, : 3 * width], before)  # (3H, H), in the order n, r, z
        sums = flat.sum(dim=0)  # (4H,)
        return (
            linear_no_grad(by_input, weight_ih.t()).view_as(inputs) if ctx.needs_input_grad[0] else None,
            by_before,
            weight_gradient(by_input, inputs.flatten(0, 1)),
            torch.cat([by_hh[width:], by_hh[:width]]),
            sums[width:],
            torch.cat([sums[width : 3 * width], sums[:width]]),
            None,
            None,
        )


def _gate_gradients(
    grad: Tensor, reset_update: Tensor, candidate: Tensor, new: Tensor, before: Tensor, by_gates: Tensor,
    by_candidate: Tensor,
) -> Tensor:  # fmt: skip
    """Gradients of r, z, n into `by_gates` (B, 3H), of n's recurrent part into `by_candidate`; returns z · grad."""
    width = before.size(1)
    reset, update = reset_update[:, :width], reset_update[:, width:]
    by_reset, by_update, by_new = by_gates[:, :width], by_gates[:, width : 2 * width], by_gates[:, 2 * width :]
    kept = grad * update
    torch.ops.aten.tanh_backward.grad_input(grad - kept, new, grad_input=by_new)
    torch.mul(by_new, reset, out=by_candidate)
    torch.ops.aten.sigmoid_backward.grad_input(by_new * candidate, reset, grad_input=by_reset)
    torch.ops.aten.sigmoid_backward.grad_input((before - new).mul_(grad), update, grad_input=by_update)
    return kept
