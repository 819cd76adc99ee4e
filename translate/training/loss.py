"""Cross entropy over real target tokens, in chunks whose size does not depend on batch or vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource

MOST_ELEMENTS = 1 << 24  # of the (rows, V) tensor of log probabilities that exist at once


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
    weights = None if decoded.weights is None else decoded.weights[tgt_valid]  # (N, S)
    targets = tgt_out[tgt_valid]  # (N,)
    sentences = torch.arange(len(tgt_out), device=tgt_out.device).unsqueeze(1).expand_as(tgt_out)[tgt_valid]  # (N,)
    rows = max(1, MOST_ELEMENTS // model.decoder.out.bias.numel())

    def chunk_loss(part: slice) -> tuple[Tensor, Tensor]:
        seen = None if weights is None else weights[part]
        log_probs = model.decoder.output(features[part], seen, source, sentences[part])  # (n, V)
        gold = log_probs.gather(1, targets[part].unsqueeze(1)).squeeze(1)  # (n,)
        spread = log_probs.mean(dim=1).sum() if smoothing else gold.sum()
        return -(1 - smoothing) * gold.sum() - smoothing * spread, gold.detach()

    if len(targets) <= rows:
        smoothed, gold = chunk_loss(slice(None))
    else:
        # Several chunks: each is computed again in the backward pass, so that only one is ever held.
        parts = [slice(begin, begin + rows) for begin in range(0, len(targets), rows)]
        losses = [checkpoint(chunk_loss, part, use_reentrant=False, preserve_rng_state=False) for part in parts]
        smoothed = torch.stack([loss for loss, _ in losses]).sum()
        gold = torch.cat([part for _, part in losses])
    by_place = gold.new_zeros(tgt_out.shape).masked_scatter(tgt_valid, gold)
    return SequenceLoss(smoothed, -gold.sum(), by_place)
