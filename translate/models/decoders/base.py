"""What every decoder is: `step` for search, `forward` for training under teacher forcing, `output` for both.

In evaluation mode `forward` and the chain of `step` give the same features, weights and states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from translate.config import ModelConfig
from translate.models.attention import Attention
from translate.models.layers import TokenEmbedding
from translate.models.member import Member
from translate.models.output import Output
from translate.models.state import Decoded, EncodedSource, SourceCache, State

S = TypeVar("S", bound=State)


class Decoder(Member, nn.Module, ABC, Generic[S]):
    """Writes the target token by token; S is what it keeps between two steps."""

    # supports: of cell, layers, layer_norm, variational, coverage, input_feeding
    attends: ClassVar[bool] = True
    """Whether it has attention; without it, [model.attention] is ignored."""
    scores: ClassVar[tuple[str, ...] | None] = None
    """The only scores that it works with; None if it works with all."""

    attention: Attention | None
    feature_width: int  # F
    output: Output

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        """`table` holds the target embeddings, `positions` is the longest source with its end symbol."""
        super().__init__()
        self.config, self.memory_width, self.width = config, memory_width, config.decoder.width
        self.embed = TokenEmbedding(table, config.embedding.dropout, config.decoder.word_dropout)

    def make_output(self, feature_width: int) -> None:
        """Make the output layer; a decoder calls it at the end of its constructor."""
        self.feature_width = feature_width
        embedding, copy = self.config.embedding, self.config.decoder.copy
        self.output = Output(feature_width, self.embed.table, embedding.tied != "none", copy)

    def prepare(self, memory: Tensor, valid: Tensor) -> SourceCache | None:
        """Compute what depends only on the source."""
        return None if self.attention is None else self.attention.prepare(memory, valid)

    def for_search(self, source: EncodedSource, hypotheses: int) -> EncodedSource:
        """The source prepared for the steps of a search with this number of hypotheses of each sentence."""
        return source

    def for_hypotheses(self, source: EncodedSource, sentences: Tensor) -> EncodedSource:
        """The source for rows that belong to these sentences (N,), ascending."""
        return source.select(sentences)

    @abstractmethod
    def start(self, source: EncodedSource) -> S:
        """The state before the first step."""

    @abstractmethod
    def step(self, token: Tensor, state: S, source: EncodedSource) -> tuple[Tensor, S, Tensor | None]:
        """token (B,) -> features (B, F), the next state, weights (B, S) or None without attention."""

    @abstractmethod
    def forward(self, tgt_in: Tensor, source: EncodedSource) -> Decoded:
        """tgt_in (B, T) -> features (B, T, F) and weights (B, T, S)."""
