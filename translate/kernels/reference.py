"""The plain twin of every kernel: what it computes, in torch's own operations.

One test holds each kernel equal to its twin, values and gradients. `TRANSLATE_KERNELS=reference` runs the whole program
on the twins, and torch.compile traces only them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from translate.kernels.shared_gradients import FastLinear


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: (…, K), (N, K), (N,) -> (…, N)."""
    return F.linear(inputs, weight, bias)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_s α_s v_s: weights (B, G, T, S), values (B, G, S, C) -> (B, G, T, C)."""
    return torch.matmul(weights, values)


def additive_score(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(q + k): queries (B, G, T, A), keys (B, G, S, A), v (G, A) -> (B, G, T, S)."""
    units = torch.tanh(queries.unsqueeze(3) + keys.unsqueeze(2))  # (B, G, T, S, A)
    return torch.einsum("bgtsa,ga->bgts", units, v.to(units.dtype))


def gru(inputs: Tensor, start: Tensor, input: FastLinear, recurrent: FastLinear, extra: FastLinear | None) -> Tensor:
    """r = σ(x_r + h_r);  z = σ(x_z + h_z);  n = tanh(x_n + r ⊙ h_n);  h' = (1 − z) ⊙ n + z ⊙ h.

    inputs (B, T, E), start (B, H) -> (B, T, H).
    """
    weight = input.weight if extra is None else torch.cat([input.weight, extra.weight], dim=1)  # (3H, E)
    hidden, states = start, []
    for gates in F.linear(inputs, weight, input.bias).unbind(dim=1):  # (B, 3H)
        input_reset, input_update, input_new = gates.chunk(3, dim=1)  # (B, H) each
        recurrent_reset, recurrent_update, recurrent_new = recurrent(hidden).chunk(3, dim=1)
        reset = torch.sigmoid(input_reset + recurrent_reset)
        update = torch.sigmoid(input_update + recurrent_update)
        new = torch.tanh(input_new + reset * recurrent_new)
        hidden = (1 - update) * new + update * hidden
        states.append(hidden)
    return torch.stack(states, dim=1)


def lstm(
    inputs: Tensor, start: Tensor, cell: Tensor, input: FastLinear, recurrent: FastLinear, extra: FastLinear | None
) -> Tensor:
    """c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g);  h' = σ(o) ⊙ tanh(c'): inputs (B, T, E), start, cell (B, H) -> (B, T, H)."""
    weight = input.weight if extra is None else torch.cat([input.weight, extra.weight], dim=1)  # (4H, E)
    hidden, states = start, []
    for gates in F.linear(inputs, weight, input.bias).unbind(dim=1):  # (B, 4H)
        i, f, g, o = (gates + recurrent(hidden)).chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        states.append(hidden)
    return torch.stack(states, dim=1)


def dropout_mask(values: Tensor, share: float) -> Tensor:
    """A mask of the values' shape: zero with probability `share`, else 1 / (1 − share)."""
    return F.dropout(torch.ones_like(values), share)


def log_softmax(logits: Tensor, bias: Tensor) -> Tensor:
    """log softmax(logits + b) in at least float32: (…, V), (V,) -> (…, V)."""
    return F.log_softmax(logits + bias, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def vocabulary_loss(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Cross entropy with label smoothing: its sum () and log p(target) (N,), the second without gradient."""
    log_probs = log_softmax(F.linear(features, weight), bias)  # (N, V)
    gold = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)  # (N,)
    return -(1 - smoothing) * gold.sum() - smoothing * log_probs.mean(dim=1).sum(), gold.detach()


INT8_MOST = 127  # the greatest signed number of 8 bits


def rounded_to_int8(table: Tensor) -> tuple[Tensor, Tensor]:
    """Integers from −127 to 127 (N, K), as floats, and their scales (N, 1)."""
    scales = table.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny) / INT8_MOST
    return (table / scales).round(), scales


def int8_linear(inputs: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x Wᵀ with both sides rounded to 8 bits: (M, K), integers (N, K) and their scales (N, 1) -> (M, N)."""
    rounded, input_scales = rounded_to_int8(inputs)
    return (rounded.double() @ weight.double().t()).float() * input_scales * scales.t()
