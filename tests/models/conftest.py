"""Small models of every kind, with a different size for every dimension so that a swapped axis fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from translate.config import ModelConfig
from translate.models.seq2seq import Seq2Seq

SRC_VOCABULARY, TGT_VOCABULARY = 17, 19
LENGTHS = (8, 1, 5)  # of the sources; not sorted, so that nothing may rely on it
NUM_TARGETS = 4


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    src: Tensor  # (B, S)
    src_valid: Tensor  # (B, S)
    src_lengths: Tensor  # (B,)
    tgt_in: Tensor  # (B, T)

    def alone(self, row: int) -> Inputs:
        """One sentence of the batch, without its padding."""
        one, length = slice(row, row + 1), int(self.src_lengths[row])
        return Inputs(self.src[one, :length], self.src_valid[one, :length], self.src_lengths[one], self.tgt_in[one])


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny products are slower on several cores."""
    torch.set_num_threads(1)


@pytest.fixture
def make_model() -> Callable[..., Seq2Seq]:
    """Builds a model whose every number is random, biases and the padding vector included, so that no leak is nil."""

    def make(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Seq2Seq:
        src_vocabulary = TGT_VOCABULARY if config.embedding.tied == "three" else SRC_VOCABULARY
        model = Seq2Seq(config, src_vocabulary, TGT_VOCABULARY).to(dtype).eval()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        return model

    return make


@pytest.fixture
def make_inputs() -> Callable[..., Inputs]:
    """Builds a batch; padding holds arbitrary tokens, because its content must never matter."""

    def make(lengths: tuple[int, ...] = LENGTHS, more_src: int = 0, more_tgt: int = 0, filler: int = 0) -> Inputs:
        generator = torch.Generator().manual_seed(2)
        src_lengths = torch.tensor(lengths)
        src = torch.full((len(lengths), max(lengths) + more_src), filler)
        for row, length in enumerate(lengths):
            src[row, :length] = torch.randint(4, SRC_VOCABULARY, (length,), generator=generator)
        tgt_in = torch.randint(4, TGT_VOCABULARY, (len(lengths), NUM_TARGETS), generator=generator)
        tgt_in = torch.cat([tgt_in, torch.full((len(lengths), more_tgt), filler)], dim=1)
        return Inputs(src, torch.arange(src.size(1)) < src_lengths.unsqueeze(1), src_lengths, tgt_in)

    return make
