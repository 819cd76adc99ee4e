"""The whole model, assembled from its settings here and nowhere else."""

from __future__ import annotations

import math

from torch import Tensor, nn

from translate.config import ModelConfig
from translate.models.decoders import DECODERS
from translate.models.encoders import ENCODERS
from translate.models.layers import SelfAttention, TokenEmbedding
from translate.models.member import Member
from translate.models.output import CopyGate
from translate.models.recurrence import RecurrentLayer
from translate.models.state import Decoded, EncodedSource, State
from translate.models.summaries import SUMMARIES


class Seq2Seq(nn.Module):
    """An encoder and a decoder: `encode` and `decoder.step` are for search, `forward` is for training."""

    def __init__(self, config: ModelConfig, src_vocabulary: int, tgt_vocabulary: int, max_length: int) -> None:
        """`max_length` is the longest source in pieces; only a score by position needs it."""
        super().__init__()
        width = config.embedding.width
        tgt_table = nn.Embedding(tgt_vocabulary, width, padding_idx=0)
        if config.embedding.tied == "three":
            assert src_vocabulary == tgt_vocabulary, "three-way tying needs one vocabulary; the configuration checks it"
            src_table = tgt_table
        else:
            src_table = nn.Embedding(src_vocabulary, width, padding_idx=0)
        self.src_embed = TokenEmbedding(src_table, config.embedding.dropout, config.encoder.word_dropout)
        self.encoder = ENCODERS[config.encoder.kind](width, config.encoder)
        memory_width = self.encoder.output_width
        self.self_attention = SelfAttention(memory_width) if config.encoder.self_attention else None
        self.summary = SUMMARIES[config.encoder.summary](memory_width)
        self.decoder = DECODERS[config.decoder.kind](config, memory_width, tgt_table, max_length + 1)
        initialise(self)

    def encode(self, src: Tensor, src_valid: Tensor, src_lengths: Tensor, progress: float = 1.0) -> EncodedSource:
        """src (B, S), src_valid (B, S), src_lengths (B,) on the CPU; `progress` is the share of training done."""
        memory, final = self.encoder(self.src_embed(src), src_valid, src_lengths)  # (B, S, D), (B, D)
        if self.self_attention is not None:
            memory = self.self_attention(memory, src_valid)
        memory = memory * src_valid.unsqueeze(-1)  # zero at padding
        summary = self.summary(memory, final, src_valid)  # (B, D)
        return EncodedSource(src, memory, src_valid, self.decoder.prepare(memory, src_valid), summary, progress)

    def forward(
        self,
        src: Tensor,
        src_valid: Tensor,
        src_lengths: Tensor,
        tgt_in: Tensor,
        progress: float = 1.0,
    ) -> tuple[Decoded, EncodedSource]:
        """Read the sources and write the targets under teacher forcing."""
        source = self.encode(src, src_valid, src_lengths, progress)
        return self.decoder(tgt_in, source), source

    # -- the interface for search: decoding/search_model.py ------------------------------------------------------------

    def for_search(self, source: EncodedSource, hypotheses: int) -> EncodedSource:
        return self.decoder.for_search(source, hypotheses)

    def for_hypotheses(self, source: EncodedSource, sentences: Tensor) -> EncodedSource:
        return self.decoder.for_hypotheses(source, sentences)

    def start(self, source: EncodedSource) -> State:
        return self.decoder.start(source)

    def advance(self, tokens: Tensor, state: State, source: EncodedSource) -> tuple[Tensor, State, Tensor | None]:
        assert not self.training, "search needs a model in evaluation mode"
        features, state, weights = self.decoder.step(tokens, state, source)
        return self.decoder.output.log_probs(features, weights, source), state, weights

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def initialise(model: nn.Module) -> None:
    """Matrices by Xavier, vectors at zero; then the layers' and members' own initialisation, the outermost last."""
    for parameter in model.parameters():
        nn.init.zeros_(parameter) if parameter.dim() < 2 else nn.init.xavier_uniform_(parameter)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):  # so that a tied output starts near zero
            nn.init.normal_(module.weight, std=1.0 / math.sqrt(module.embedding_dim))
            module.weight.data[0].zero_()
        elif isinstance(module, RecurrentLayer | CopyGate):
            module.initialise()
    for module in reversed(list(model.modules())):
        if isinstance(module, Member):
            module.initialise()
