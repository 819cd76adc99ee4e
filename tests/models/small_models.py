"""Small models and batches whose every number is random, and what is done with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tests.models.covering import configure
from translate.config import ModelConfig
from translate.models.encoders.recurrent import RecurrentEncoder
from translate.models.layers import Dropout
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource

SRC_VOCABULARY, TGT_VOCABULARY = 17, 19
LENGTHS = (7, 1, 5)  # of the sources; not sorted, so that nothing may rely on it
NUM_TARGETS = 4
MAX_LENGTH = 12
Module = TypeVar("Module", bound=nn.Module)


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


def make_inputs(
    lengths: tuple[int, ...] = LENGTHS, more_src: int = 0, more_tgt: int = 0, filler: int = 0, steps: int = NUM_TARGETS
) -> Inputs:
    """A batch; padding holds whatever token is asked for, because its content must never matter."""
    generator = torch.Generator().manual_seed(2)
    src_lengths = torch.tensor(lengths)
    src = torch.full((len(lengths), max(lengths) + more_src), filler)
    for row, length in enumerate(lengths):
        src[row, :length] = torch.randint(4, SRC_VOCABULARY, (length,), generator=generator)
    tgt_in = torch.randint(4, TGT_VOCABULARY, (len(lengths), steps), generator=generator)
    tgt_in = torch.cat([tgt_in, torch.full((len(lengths), more_tgt), filler)], dim=1)
    return Inputs(src, torch.arange(src.size(1)) < src_lengths.unsqueeze(1), src_lengths, tgt_in)


def build(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Seq2Seq:
    """A model in evaluation mode whose every number is random, so that no leak is nil: biases, padding vector, all."""
    joint = config.embedding.tied == "three" or config.decoder.copy
    model = Seq2Seq(config, TGT_VOCABULARY if joint else SRC_VOCABULARY, TGT_VOCABULARY, MAX_LENGTH)
    return shake(model.to(dtype).eval())


def make_model(**settings: Any) -> Seq2Seq:
    """The same from single settings, as in `decoder__kind="luong"`."""
    return build(configure({name.replace("__", "."): value for name, value in settings.items()}))


def shake(module: Module, scale: float = 0.5, seed: int = 1) -> Module:
    """Random numbers for all parameters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return module


def without_dropout(module: Module) -> Module:
    """The same module, whose every dropout drops nothing even in training."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.share = 0.0
        elif isinstance(part, RecurrentEncoder):
            part.dropout = 0.0
    return module


def sample(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def run(model: Seq2Seq, inputs: Inputs, progress: float = 1.0) -> tuple[Decoded, EncodedSource]:
    decoded, source = model(inputs.src, inputs.src_valid, inputs.src_lengths, inputs.tgt_in, progress)
    return decoded, source


def encode(model: Seq2Seq, inputs: Inputs) -> EncodedSource:
    return model.encode(inputs.src, inputs.src_valid, inputs.src_lengths)


def output(model: Seq2Seq, decoded: Decoded, source: EncodedSource) -> Tensor:
    """Log probabilities (B, T, V) of all steps."""
    num_rows, num_steps = decoded.features.shape[:2]
    rows = torch.arange(num_rows).repeat_interleave(num_steps)
    weights = None if decoded.weights is None else decoded.weights.flatten(0, 1)
    log_probs = model.decoder.output.log_probs(decoded.features.flatten(0, 1), weights, source, rows)
    return log_probs.unflatten(0, (num_rows, num_steps))


def check_close(found: Tensor | None, expected: Tensor | None, tolerance: float = 1e-10) -> None:
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    alike = found.shape == expected.shape and found.dtype == expected.dtype
    # The quick way out for what is right; torch's check is slow and explains what is wrong.
    if not alike or not ((found - expected).abs() <= tolerance).all():
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a nest of dataclasses, dictionaries and tuples, in order."""
    if isinstance(value, Tensor):
        return [value]
    if value is None or isinstance(value, float):
        return []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, tuple):
        parts = list(value)
    else:
        parts = [getattr(value, name) for name in value.__dataclass_fields__]
    return [tensor for part in parts for tensor in tensors_in(part)]
