"""What tests of kernels are given: random tensors, processors, and how two results are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from translate.config import AttentionConfig, DecoderConfig, EmbeddingConfig, EncoderConfig, ModelConfig
from translate.kernels import matmul
from translate.models.seq2seq import Seq2Seq


class Processor(NamedTuple):
    """What machine.cpu_name() and machine.cpu_family() say."""

    name: str
    family: int


PROCESSORS = {
    "Zen 4": Processor("AMD EPYC", 25),
    "Zen 5": Processor("AMD EPYC", 26),
    "Xeon": Processor("Intel(R) Xeon(R)", 6),
    "other": Processor("", 0),
}
every_processor = pytest.mark.parametrize("processor", PROCESSORS)


def use_processor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Take the paths of a processor, whichever this one is, for matrices and products of any size."""
    processor = PROCESSORS[name]
    monkeypatch.setattr(matmul, "cpu_name", lambda: processor.name)
    monkeypatch.setattr(matmul, "cpu_family", lambda: processor.family)
    monkeypatch.setattr(matmul, "_MIN_ELEMENTS", 1)
    monkeypatch.setattr(matmul, "_MIN_ROWS", 1)


def sample(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers; the same for every precision, but for rounding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def in_float32(*shape: int, seed: int) -> Tensor:
    return sample(*shape, seed=seed, dtype=torch.float32)


def check_close(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def check_all_close(found: Iterable[Tensor], expected: Iterable[Tensor], tolerance: float = 1e-10) -> None:
    for one, other in zip(found, expected, strict=True):
        check_close(one, other, tolerance)


def gradients(results: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of a random weighting of all results, with respect to the leaves; zero for one that plays no part."""
    total = sum((result * sample(*result.shape, seed=90 + i).to(result)).sum() for i, result in enumerate(results))
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, list(leaves), materialize_grads=True))


# -- a model -----------------------------------------------------------------------------------------------------------

VOCABULARY = 19


def small_model(kind: str, width: int = 6, **decoder: Any) -> Seq2Seq:
    """A model in float64 and evaluation mode, every number random, so that a bias that is left out shows."""
    config = ModelConfig(
        embedding=EmbeddingConfig(width=width - 1),
        encoder=EncoderConfig(width=width),
        attention=AttentionConfig(score="location" if kind == "tutorial" else "additive", width=width + 1),
        decoder=DecoderConfig(kind=kind, width=width + 2, **decoder),
    )
    model = Seq2Seq(config, VOCABULARY, VOCABULARY, 12).double().eval()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(0.5 * sample(*parameter.shape, seed=index))
    return model


@dataclass(frozen=True)
class Pairs:
    """What a model is called with."""

    src: Tensor  # (B, S)
    src_valid: Tensor  # (B, S)
    src_lengths: Tensor  # (B,)
    tgt_in: Tensor  # (B, T)


def small_pairs() -> Pairs:
    generator = torch.Generator().manual_seed(2)
    lengths = torch.tensor([7, 1, 5])
    valid = torch.arange(7) < lengths.unsqueeze(1)
    src = torch.randint(4, VOCABULARY, (3, 7), generator=generator) * valid
    return Pairs(src, valid, lengths, torch.randint(4, VOCABULARY, (3, 4), generator=generator))
