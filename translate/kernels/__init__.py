"""All code that exists for speed, behind few functions; `models/` contains the algebra and calls these.

The plain twin of each kernel is in `reference.py`. With `TRANSLATE_KERNELS=reference` the twins run instead.
"""

from translate.kernels.additive import additive_score, in_slices
from translate.kernels.dispatch import KERNELS, plain, uses_twin
from translate.kernels.dropout import dropout_mask
from translate.kernels.gru import gru, lstm
from translate.kernels.int8 import int8
from translate.kernels.matmul import linear
from translate.kernels.packed import packed
from translate.kernels.shared_gradients import FastLinear, share_gradients, weighted_sum
from translate.kernels.vocabulary import log_softmax, vocabulary_chunks, vocabulary_loss

__all__ = [
    "KERNELS",
    "FastLinear",
    "additive_score",
    "dropout_mask",
    "gru",
    "in_slices",
    "int8",
    "linear",
    "log_softmax",
    "lstm",
    "packed",
    "plain",
    "share_gradients",
    "uses_twin",
    "vocabulary_chunks",
    "vocabulary_loss",
    "weighted_sum",
]
