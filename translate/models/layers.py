"""Small layers that several parts of a model use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate import kernels
from translate.kernels import FastLinear


def at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def masked_softmax(scores: Tensor, valid: Tensor) -> Tensor:
    """Softmax over the last dimension in at least float32; exactly zero where not valid, even if nothing is valid."""
    scores = at_least_float32(scores)
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~valid, lowest), dim=-1)
    return weights.masked_fill(~valid, 0.0)


def dropout(values: Tensor, share: float, training: bool = True) -> Tensor:
    """Each value becomes zero with probability `share`; the others are scaled so that the mean stays."""
    return values * kernels.dropout_mask(values, share) if training and share else values


class Dropout(nn.Module):
    """`dropout` with a fixed share, active in training only."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.share, self.training)


class TokenEmbedding(nn.Module):
    """Embeddings of tokens, with dropout on their entries and on whole words."""

    def __init__(self, table: nn.Embedding, dropout: float, word_dropout: float) -> None:
        super().__init__()
        self.table = table
        self.dropout = Dropout(dropout)
        self.word_dropout = word_dropout

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.dropout(self.table(tokens))  # (…, E)
        if not self.training or not self.word_dropout:
            return embedded
        kept = dropout(torch.ones_like(embedded[..., :1]), self.word_dropout)  # (…, 1)
        return embedded * kept


class SelfAttention(nn.Module):
    """One residual layer in which the positions of the source attend to each other (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = FastLinear(width, 3 * width, bias=False)
        self.out = FastLinear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, memory: Tensor, valid: Tensor) -> Tensor:
        """norm(m + W softmax(q kᵀ / √d) v): (B, S, D) -> (B, S, D)."""
        query, key, value = self.project(memory).chunk(3, dim=-1)  # (B, S, D) each
        scores = torch.bmm(query, key.transpose(1, 2)) * query.size(-1) ** -0.5  # (B, S, S)
        weights = masked_softmax(scores, valid.unsqueeze(1))  # (B, S, S)
        attended = torch.bmm(weights.to(value.dtype), value)  # (B, S, D)
        normed: Tensor = self.norm(memory + self.out(attended))
        return normed
