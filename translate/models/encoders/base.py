"""The interface of encoders: embeddings in, memory and final state out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from translate.config import EncoderConfig
from translate.models.member import Member


class Encoder(Member, nn.Module, ABC):
    """Reads embeddings (B, S, E) and gives a memory (B, S, D) and a final state (B, D)."""

    # supports: of layers, residual, layer_norm, variational, reverse
    width_multiple: ClassVar[int] = 1
    """Width of the memory divided by encoder.width."""

    def __init__(self, input_width: int, config: EncoderConfig) -> None:
        super().__init__()
        self.input_width, self.config = input_width, config
        self.output_width = config.width * self.width_multiple  # D

    @abstractmethod
    def forward(self, embedded: Tensor, valid: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """embedded (B, S, E), valid (B, S), lengths (B,) on the CPU -> memory (B, S, D), final state (B, D).

        Padding must not change results at real positions; results at padding are not used.
        """
