"""Weights that no longer change, laid out for products with few rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.models.recurrence import Layer
from translate.models.seq2seq import Seq2Seq

_MOST_HOISTED = 1 << 24  # numbers that may be looked up instead of being computed: 64 MiB


@torch.no_grad()
def pack(model: Seq2Seq) -> None:
    """Store the decoder's matrices column by column, the same numbers and shapes, and look up what tokens alone give.

    With 5 and 64 rows the products of a 512-wide model run 1.1 to 1.5 times as fast this way (docs/search.md). A model
    that goes on to train should not be packed. Of the encoder only what is used step by step: its loop would copy it.
    """
    if next(model.parameters()).device.type != "cpu":
        return
    recurrent = [layer.recurrent for layer in model.encoder.modules() if isinstance(layer, Layer)]
    for module in (*model.decoder.modules(), *recurrent):
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(_by_column(module.weight), requires_grad=False)
    if model.decoder.stack.first.input.out_features * model.decoder.embed.table.num_embeddings <= _MOST_HOISTED:
        model.decoder.hoist_all()
    out = model.decoder.out  # a matrix of its own: rows of embeddings are read faster where they lie together
    out.weight = nn.Parameter(_by_column(out.weight), requires_grad=False)


def _by_column(weight: Tensor) -> Tensor:
    return weight.detach().t().contiguous().t()
