"""Cross entropy over real target tokens, in chunks whose size does not depend on batch or vocabulary."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from translate.models.layout import SumOverRows, filled_up, times
from translate.models.loops import cached_slices
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource

MOST_ELEMENTS = 1 << 22  # of the (rows, V) tensor of log probabilities that exist at once


class SequenceLoss(NamedTuple):
    """Sums over the real tokens of a batch."""

    smoothed: Tensor  # (), with label smoothing: what is learnt from
    nll: Tensor  # (), the plain negative log likelihood
    gold: Tensor  # (B, T), the log probability of each reference token, zero at padding; both without gradient


def sequence_loss(
    model: Seq2Seq, decoded: Decoded, source: EncodedSource, tgt_out: Tensor, tgt_valid: Tensor, smoothing: float
) -> SequenceLoss:
    """How surprising the references (B, T) are.

    Label smoothing spreads its share evenly over the vocabulary (Szegedy et al. 2016): padding never gets here.
    """
    features = decoded.features[tgt_valid]  # (N, F)
    targets = tgt_out[tgt_valid]  # (N,)
    if model.decoder.copy is None:
        out = model.decoder.out
        smoothed, gold = _VocabularyLoss.apply(  # type: ignore[no-untyped-call]
            out.fit(features), out.weight, out.bias, targets, smoothing
        )
    else:
        weights = None if decoded.weights is None else decoded.weights[tgt_valid]  # (N, S)
        sentences = torch.arange(len(tgt_out), device=tgt_out.device).unsqueeze(1).expand_as(tgt_out)[tgt_valid]  # (N,)
        smoothed, gold = _mixture_loss(model, features, weights, source, sentences, targets, smoothing)
    by_place = gold.new_zeros(tgt_out.shape).masked_scatter(tgt_valid, gold)
    return SequenceLoss(smoothed, -gold.sum(), by_place)


def _rows(vocabulary: int) -> int:
    """How many tokens may have their log probabilities at once: a number that need not be rounded, if it is large."""
    most = max(1, MOST_ELEMENTS // vocabulary)
    return most if most < 64 else most // 64 * 64


class _VocabularyLoss(Function):
    """Vocabulary product, log softmax and cross entropy, with the gradient formed while a chunk is at hand.

    The sum over tokens is linear in what comes back to it, so that nothing has to be kept or computed twice: features
    (N, F), weight (V, F), bias (V,), targets (N,) -> the loss () and the log probability of each target (N,).
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(features.dtype, torch.float32)
        gold, loss = features.new_empty(len(targets), dtype=wide), features.new_zeros((), dtype=wide)
        learning = any(ctx.needs_input_grad[:3])
        of_features, of_weight, of_bias = torch.empty_like(features), SumOverRows(weight), torch.zeros_like(bias)
        rows = _rows(len(weight))
        for begin in range(0, len(targets), rows):
            part = slice(begin, begin + rows)
            num_rows, given = len(features[part]), filled_up(features[part], weight)  # (n, F), or more, of zeros
            logits = times(given, weight)  # (n, V), in half precision under autocast
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
                of_bias.add_(values.sum(dim=0))
            if learning:
                by_logits = table.to(logits.dtype)
                of_features[part] = times(by_logits, weight.t().to(logits.dtype))[:num_rows]
                of_weight.add(by_logits, given.to(logits.dtype))
        grads = (of_features, of_weight.total(), of_bias) if learning else None
        ctx.grads = grads
        ctx.mark_non_differentiable(gold)
        return loss - (1 - smoothing) * gold.sum(), gold

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        assert ctx.grads is not None, "backward is called once"
        grads, ctx.grads = ctx.grads, None
        return *(one.mul_(grad) for one in grads), None, None


def _mixture_loss(
    model: Seq2Seq,
    features: Tensor,
    weights: Tensor | None,
    source: EncodedSource,
    sentences: Tensor,
    targets: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """The same where the log probabilities are those of a mixture: by `Decoder.output`, whatever it mixes."""

    def chunk_loss(part: slice) -> tuple[Tensor, Tensor]:
        seen = None if weights is None else weights[part]
        log_probs = model.decoder.output(features[part], seen, source, sentences[part])  # (n, V)
        gold = log_probs.gather(1, targets[part].unsqueeze(1)).squeeze(1)  # (n,)
        spread = log_probs.mean(dim=1).sum() if smoothing else gold.sum()
        return -(1 - smoothing) * gold.sum() - smoothing * spread, gold.detach()

    rows = _rows(len(model.decoder.out.weight))
    if len(targets) <= rows:
        return chunk_loss(slice(None))
    # Several chunks: each is computed again in the backward pass, so that only one is ever held.
    parts = [slice(begin, begin + rows) for begin in range(0, len(targets), rows)]
    losses = [checkpoint(chunk_loss, part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    return torch.stack([loss for loss, _ in losses]).sum(), torch.cat([part for _, part in losses])
