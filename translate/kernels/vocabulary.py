"""The vocabulary's product and softmax, the widest tables of a model: (rows, V)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from translate.kernels import reference
from translate.kernels.dispatch import kernel
from translate.kernels.matmul import WeightGradientSum, linear_no_grad, pad_rows_if_faster
from translate.kernels.slices import cached_slices

MAX_ELEMENTS = 1 << 22  # of the (rows, V) tensor of log probabilities that exist at once


@kernel(reference.log_softmax)
def log_softmax(logits: Tensor, bias: Tensor) -> Tensor:
    """log softmax(logits + b) in at least float32: (…, V), (V,) -> (…, V). Overwrites logits that need no gradient.

    Bias and softmax are applied to some rows at a time, because a large table does not stay in the cache.
    """
    precise = logits.dtype in (torch.float32, torch.float64)
    if logits.requires_grad or not precise or logits.device.type != "cpu":
        return reference.log_softmax(logits, bias)
    rows = logits.view(-1, logits.size(-1))
    for some in cached_slices(len(rows), rows.size(1), rows.device):
        part = rows[some].add_(bias)
        torch.log_softmax(part, dim=-1, out=part)
    return logits


def vocabulary_chunks(num_tokens: int, vocabulary: int) -> list[slice]:
    """Slices of tokens whose log probabilities may exist at once; large ones have a multiple of 64 rows."""
    rows = max(1, MAX_ELEMENTS // vocabulary)
    rows = rows if rows < 64 else rows // 64 * 64
    return [slice(begin, begin + rows) for begin in range(0, num_tokens, rows)]


@kernel(reference.vocabulary_loss)
def vocabulary_loss(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Cross entropy: features (N, F), weight (V, F), bias (V,), targets (N,) -> its sum () and log p(target) (N,).

    Label smoothing spreads its share evenly over the vocabulary. The log probabilities carry no gradient.
    """
    loss, gold = _VocabularyLoss.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, targets, smoothing
    )
    return loss, gold


class _VocabularyLoss(Function):
    """The product, log softmax and cross entropy; the gradient of each chunk is computed in the forward pass.

    The loss is a sum, so the incoming gradient is only a factor, and nothing has to be stored or computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(features.dtype, torch.float32)
        gold, loss = features.new_empty(len(targets), dtype=wide), features.new_zeros((), dtype=wide)
        learning = any(ctx.needs_input_grad[:3])
        by_features, by_weight, by_bias = torch.empty_like(features), WeightGradientSum(weight), torch.zeros_like(bias)
        for part in vocabulary_chunks(len(targets), len(weight)):
            num_rows, given = len(features[part]), pad_rows_if_faster(features[part], weight)  # (n, F), or more
            logits = linear_no_grad(given, weight)  # (n, V), in half precision under autocast
            table = logits.to(wide)  # becomes probabilities, then the gradient of the logits
            for some in cached_slices(num_rows, table.size(1), table.device):
                values, chosen = table[some].add_(bias), targets[part][some].unsqueeze(1)
                picked, mean, top = values.gather(1, chosen).squeeze(1), values.mean(dim=1), values.amax(dim=1)
                torch.softmax(values, dim=-1, out=values)
                total = top - values.amax(dim=1).log()  # log Σ exp of the logits: the greatest has p = exp(top) / Σ
                gold[part][some] = picked - total
                if smoothing:
                    loss -= smoothing * (mean - total).sum()
                if not learning:
                    continue  # values: p − smoothing / V − (1 − smoothing) at the target
                if smoothing:
                    values -= smoothing / len(weight)
                values.scatter_add_(1, chosen, values.new_full((), smoothing - 1).expand_as(chosen))
                by_bias.add_(values.sum(dim=0))
            if learning:
                by_logits = table.to(logits.dtype)
                by_features[part] = linear_no_grad(by_logits, weight.t().to(logits.dtype))[:num_rows]
                by_weight.add(by_logits, given.to(logits.dtype))
        grads = (by_features, by_weight.total(), by_bias) if learning else None
        ctx.grads = grads
        ctx.mark_non_differentiable(gold)
        return loss - (1 - smoothing) * gold.sum(), gold

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        assert ctx.grads is not None, "backward is called once"
        grads, ctx.grads = ctx.grads, None
        return *(one.mul_(grad) for one in grads), None, None
