"""Weights that no longer change, laid out for products with few rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.models.decoders import OutputLayer
from translate.models.loops import Product
from translate.models.recurrence import Layer
from translate.models.seq2seq import Seq2Seq

_MOST_HOISTED = 1 << 24  # numbers that may be looked up instead of being computed: 64 MiB


@torch.no_grad()
def pack(model: Seq2Seq) -> None:
    """Lay out the matrices as products read them, the same numbers and shapes, and look up what tokens alone give.

    By oneDNN where that pays (`Laid`); else column by column, with which products of 5 and 64 rows run 1.1 to 1.5 times
    as fast on Intel's processors (docs/search.md). A model that goes on to train should not be packed.
    """
    if next(model.parameters()).device.type != "cpu":
        return
    for module in model.modules():
        if isinstance(module, Product | OutputLayer):
            module.settle()
    recurrent = [layer.recurrent for layer in model.encoder.modules() if isinstance(layer, Layer)]
    for module in (*model.decoder.modules(), *recurrent):
        if isinstance(module, nn.Linear) and getattr(module, "laid", None) is None:
            module.weight = nn.Parameter(_by_column(module.weight), requires_grad=False)
    if model.decoder.stack.first.input.out_features * model.decoder.embed.table.num_embeddings <= _MOST_HOISTED:
        model.decoder.hoist_all()
    out = model.decoder.out
    if out.laid is None:  # a matrix of its own: rows of embeddings are read faster where they lie together
        out.weight = nn.Parameter(_by_column(out.weight), requires_grad=False)


def _by_column(weight: Tensor) -> Tensor:
    return weight.detach().t().contiguous().t()
