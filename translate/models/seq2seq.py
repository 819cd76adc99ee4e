"""The only assembly point: settings in, a whole model out."""

from __future__ import annotations

import math

from torch import Tensor, nn

from translate.config import ModelConfig
from translate.models.decoders import DECODERS, TokenEmbedding
from translate.models.encoders import ENCODERS, SUMMARIES
from translate.models.state import Decoded, EncodedSource


class Seq2Seq(nn.Module):
    """An encoder and a decoder. `encode` and `decoder.step` serve search, `forward` serves training."""

    def __init__(self, config: ModelConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__()
        width = config.embedding.width
        tgt_table = nn.Embedding(tgt_vocabulary, width, padding_idx=0)
        if config.embedding.tied == "three":
            assert src_vocabulary == tgt_vocabulary, "three-way tying needs one vocabulary; the configuration checks it"
            src_table = tgt_table
        else:
            src_table = nn.Embedding(src_vocabulary, width, padding_idx=0)
        self.src_embed = TokenEmbedding(src_table, config.embedding.dropout)
        self.encoder = ENCODERS[config.encoder.kind](width, config.encoder)
        self.summary = SUMMARIES[config.encoder.summary]
        self.decoder = DECODERS[config.decoder.kind](config, self.encoder.output_width, tgt_table)
        initialise(self)

    def encode(self, src: Tensor, src_valid: Tensor, src_lengths: Tensor) -> EncodedSource:
        """src (B, S), src_valid (B, S), src_lengths (B,) on the CPU."""
        memory, final = self.encoder(self.src_embed(src), src_valid, src_lengths)  # (B, S, D), (B, D)
        summary = self.summary(memory, final, src_valid)  # (B, D)
        return EncodedSource(src, memory, src_valid, self.decoder.prepare(memory, src_valid), summary)

    def forward(
        self, src: Tensor, src_valid: Tensor, src_lengths: Tensor, tgt_in: Tensor
    ) -> tuple[Decoded, EncodedSource]:
        """Read the sources and write the targets under teacher forcing."""
        source = self.encode(src, src_valid, src_lengths)
        return self.decoder(tgt_in, source), source

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def initialise(model: nn.Module) -> None:
    """Orthogonal recurrent matrices, Xavier elsewhere, no biases; embeddings so that a tied output starts near zero."""
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            nn.init.zeros_(parameter)
        elif "weight_hh" in name or name.endswith("stack.recurrent.weight"):
            for gate in parameter.data.chunk(3):
                nn.init.orthogonal_(gate)
        elif "weight_ih" in name or name.endswith(("stack.input.weight", "stack.extra.weight")):
            for gate in parameter.data.chunk(3):
                nn.init.xavier_uniform_(gate)
        elif name.endswith("table.weight"):
            nn.init.normal_(parameter, std=1.0 / math.sqrt(parameter.size(1)))
            parameter.data[0].zero_()
        else:
            nn.init.xavier_uniform_(parameter)
