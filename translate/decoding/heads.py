"""Translations with the probabilities of an alignment head instead of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from translate.data.batches import Batch, collate, token_batches
from translate.data.dataset import PairDataset
from translate.decoding.translator import Translation
from translate.models.alignment_head import AlignmentHead, HeadInputs, head_inputs
from translate.models.seq2seq import Seq2Seq


def inputs_of(model: Seq2Seq, batch: Batch) -> HeadInputs:
    """The head's inputs for a batch on the model's device; the model is in evaluation mode."""
    return head_inputs(
        model, batch.src, batch.src_valid, batch.src_lengths, batch.tgt_in, batch.tgt_out, batch.tgt_valid
    )


@torch.no_grad()
def read_head(
    model: Seq2Seq, head: AlignmentHead, translations: Sequence[Translation], batch_tokens: int
) -> list[Translation]:
    """The same translations, found or given, with the head's probabilities as `attention`."""
    model.eval()
    head.eval()
    device = next(head.parameters()).device
    pairs = PairDataset.from_pairs([(one.src_ids[:-1], one.tgt_ids[:-1]) for one in translations])
    longest = np.maximum(pairs.src_lengths, pairs.tgt_lengths)
    order = np.argsort(longest, kind="stable")
    found = list(translations)
    for rows in token_batches(longest, batch_tokens, order):
        batch = collate(pairs, rows).to(device)
        weights = head(inputs_of(model, batch)).cpu().numpy()  # (B, T, S)
        for row, matrix in zip(rows.tolist(), weights, strict=True):
            one = translations[row]
            found[row] = replace(one, attention=matrix[: len(one.tgt_ids), : len(one.src_ids)].copy())
    return found
