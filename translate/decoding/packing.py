"""Copies of a model for search: their weights are laid out for fast products and can no longer be trained."""

from __future__ import annotations

import torch

from translate import kernels
from translate.models.decoders import RecurrentDecoder
from translate.models.seq2seq import Seq2Seq

MAX_TABLE = 1 << 24  # elements of a decoder's token table: 64 MiB


@torch.no_grad()
def packed_for_search(model: Seq2Seq) -> Seq2Seq:
    """The model with packed weights, and with a table of `decoder.from_token` for all tokens."""
    model.eval()
    packed = kernels.packed(model)
    decoder = packed.decoder
    if packed is not model and isinstance(decoder, RecurrentDecoder):
        table = decoder.embed.table.weight
        if decoder.from_token(table[:1]).size(1) * len(table) <= MAX_TABLE:
            decoder.token_table = decoder.from_token(table)
    return packed


def int8_for_search(model: Seq2Seq) -> Seq2Seq:
    """The model with products in 8 bits in the decoder: faster and a little less exact."""
    return kernels.int8(model, "decoder")
