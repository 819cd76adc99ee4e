"""Cross entropy over real target tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource


class SequenceLoss(NamedTuple):
    """Sums over the real tokens of a batch."""

    smoothed: Tensor  # (), with label smoothing: what training minimises
    nll: Tensor  # (), the plain negative log likelihood
    gold: Tensor  # (B, T), the log probability of each reference token, zero at padding; both without gradient


def sequence_loss(
    model: Seq2Seq, decoded: Decoded, source: EncodedSource, tgt_out: Tensor, tgt_valid: Tensor, smoothing: float
) -> SequenceLoss:
    """Cross entropy of the references (B, T); padding does not go through the output layer."""
    features, targets = decoded.features[tgt_valid], tgt_out[tgt_valid]  # (N, F), (N,)
    weights = None if decoded.weights is None else decoded.weights[tgt_valid]  # (N, S)
    rows = torch.arange(len(tgt_out), device=tgt_out.device).unsqueeze(1).expand_as(tgt_out)[tgt_valid]  # (N,)
    smoothed, gold = model.decoder.output.loss(features, weights, source, targets, rows, smoothing)
    by_place = gold.new_zeros(tgt_out.shape).masked_scatter(tgt_valid, gold)
    return SequenceLoss(smoothed, -gold.sum(), by_place)
