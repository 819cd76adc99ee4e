"""An aligner on top of a trained model: it links a target piece to source pieces after the decoder has read the piece.

Letters beside those of this package: **I** source words, **J** target words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from translate.kernels import FastLinear
from translate.models.layers import masked_softmax
from translate.models.seq2seq import Seq2Seq, initialise

OFFSETS = (-1, 0, 1, 2)  # offsets of the steps whose attention the head reads for piece t
_LEAST = 1e-6  # smaller attention weights count as this, which keeps logarithms finite


@dataclass(frozen=True)
class HeadInputs:
    """The outputs of a frozen model for a batch of pairs that a head reads."""

    features: Tensor  # (B, T, F)
    tgt: Tensor  # (B, T, E), the embeddings of the target pieces themselves, not of the previous pieces
    memory: Tensor  # (B, S, D)
    src: Tensor  # (B, S, E)
    weights: Tensor  # (B, T, S)
    src_valid: Tensor  # (B, S)
    tgt_lengths: Tensor  # (B,)


@torch.no_grad()
def head_inputs(
    model: Seq2Seq,
    src: Tensor,
    src_valid: Tensor,
    src_lengths: Tensor,
    tgt_in: Tensor,
    tgt_out: Tensor,
    tgt_valid: Tensor,
) -> HeadInputs:
    """Run a model in evaluation mode on given targets, without gradient."""
    decoded, source = model(src, src_valid, src_lengths, tgt_in)
    assert decoded.weights is not None, "a head is for a model with attention"
    return HeadInputs(
        features=decoded.features,
        tgt=model.decoder.embed(tgt_out),
        memory=source.memory,
        src=model.src_embed(src),
        weights=decoded.weights,
        src_valid=src_valid,
        tgt_lengths=tgt_valid.sum(dim=1),
    )


@dataclass(frozen=True)
class HeadSizes:
    """The widths of a head's inputs, and its own width."""

    features: int
    embedding: int
    memory: int
    width: int

    @classmethod
    def of(cls, model: Seq2Seq, width: int) -> HeadSizes:
        """The sizes that fit a model."""
        decoder = model.decoder
        return cls(decoder.feature_width, decoder.config.embedding.width, decoder.memory_width, width)


class AlignmentHead(nn.Module):
    """score = q_t·k_s/√A + Σ_d g_d log α_{t+d,s}, softmax over s; `</s>` of the source is no word.

    q_t reads the decoder before and after piece t was read, and the pieces t and t + 1; k_s reads memory and embedding.
    At the start q is 0 and g is ½ for steps t and t + 1: a head starts from the attention that it has to improve.
    """

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        query_inputs = 2 * (sizes.features + sizes.embedding)
        self.query = _mlp(query_inputs, sizes.width)
        self.key = _mlp(sizes.memory + sizes.embedding, sizes.width)
        self.gains = nn.Parameter(torch.zeros(len(OFFSETS)))
        self.width = sizes.width
        initialise(self)
        with torch.no_grad():
            self.query.get_parameter("3.weight").zero_()
            self.gains[[OFFSETS.index(0), OFFSETS.index(1)]] = 0.5

    def forward(self, inputs: HeadInputs) -> Tensor:
        """Probabilities (B, T, S); rows sum to one, padding gets none."""
        lengths = inputs.tgt_lengths
        after = shifted(inputs.features, 1, lengths)  # (B, T, F): step t + 1 has read piece t
        beside = shifted(inputs.tgt, 1, lengths)  # (B, T, E)
        query = self.query(torch.cat([inputs.features, after, inputs.tgt, beside], dim=-1))  # (B, T, A)
        key = self.key(torch.cat([inputs.memory, inputs.src], dim=-1))  # (B, S, A)
        scores = query @ key.transpose(1, 2) / self.width**0.5  # (B, T, S)
        hints = inputs.weights.clamp(min=_LEAST).log()  # (B, T, S)
        for gain, offset in zip(self.gains, OFFSETS, strict=True):
            scores = scores + gain * shifted(hints, offset, lengths)
        return masked_softmax(scores, inputs.src_valid.unsqueeze(1))


def shifted(steps: Tensor, offset: int, lengths: Tensor) -> Tensor:
    """Let step t hold the values of step t + offset; beyond a sentence's ends, of its first or last step: (B, T, N)."""
    places = torch.arange(steps.size(1), device=steps.device) + offset  # (T,)
    places = torch.minimum(places.clamp(min=0), (lengths - 1).clamp(min=0).unsqueeze(1))  # (B, T)
    return steps.gather(1, places.unsqueeze(2).expand_as(steps))


def _mlp(inputs: int, width: int) -> nn.Sequential:
    hidden, out = FastLinear(inputs, width), FastLinear(width, width, bias=False)
    return nn.Sequential(nn.LayerNorm(inputs), hidden, nn.Tanh(), out)
