"""From a decoder's features to probabilities: the vocabulary's matrix and the copy mixture."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from translate import kernels
from translate.kernels import FastLinear
from translate.models.state import EncodedSource
from translate.text.tokenizer import EOS


class Output(nn.Module):
    """Features (…, F) -> log probabilities (…, V) in float32; the matrix may be the target embeddings'."""

    def __init__(self, width: int, table: nn.Embedding, tied: bool, copy: bool) -> None:
        super().__init__()
        vocabulary, embedding_width = table.weight.shape
        fitted_width = embedding_width if tied else width
        self.vocabulary = FastLinear(fitted_width, vocabulary, device="meta")  # its tensors follow
        self.vocabulary.weight = table.weight if tied else nn.Parameter(torch.empty(vocabulary, fitted_width))
        self.vocabulary.bias = nn.Parameter(torch.zeros(vocabulary))
        self.fit = nn.Identity() if width == fitted_width else FastLinear(width, fitted_width, bias=False)
        self.copy = CopyGate(width) if copy else None

    def log_probs(
        self, features: Tensor, weights: Tensor | None, source: EncodedSource, rows: Tensor | None = None
    ) -> Tensor:
        """For search: features (N, F), weights (N, S) -> (N, V).

        `rows` (N,) is the sentence of the source that each row belongs to; without it, row n belongs to sentence n.
        """
        logits = self.vocabulary.without_bias(self.fit(features))
        log_probs = kernels.log_softmax(logits, self.vocabulary.bias)
        if self.copy is None:
            return log_probs
        assert weights is not None
        if rows is None and source.sharing is not None:
            rows = source.sharing.sentences
        src = source.tokens if rows is None else source.tokens[rows]  # (N, S)
        mixed: Tensor = self.copy(features, log_probs, weights, src, src > EOS)
        return mixed

    def loss(
        self, features: Tensor, weights: Tensor | None, source: EncodedSource, targets: Tensor, rows: Tensor,
        smoothing: float = 0.0,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """For training: the summed cross entropy () and log p(target) (N,), the second without gradient.

        The same as from `log_probs`, but in chunks, so that memory does not grow with tokens × vocabulary. Label
        smoothing spreads its share evenly over the vocabulary (Szegedy et al. 2016).
        """
        if self.copy is None:
            matrix = self.vocabulary
            return kernels.vocabulary_loss(self.fit(features), matrix.weight, matrix.bias, targets, smoothing)

        def chunk_loss(part: slice) -> tuple[Tensor, Tensor]:
            seen = None if weights is None else weights[part]
            log_probs = self.log_probs(features[part], seen, source, rows[part])  # (n, V)
            gold = log_probs.gather(1, targets[part].unsqueeze(1)).squeeze(1)  # (n,)
            spread = log_probs.mean(dim=1).sum() if smoothing else gold.sum()
            return -(1 - smoothing) * gold.sum() - smoothing * spread, gold.detach()

        chunks = kernels.vocabulary_chunks(len(targets), self.vocabulary.out_features)
        if len(chunks) == 1:
            return chunk_loss(chunks[0])
        # Each chunk is computed again in the backward pass, so that only one is in memory at a time.
        losses = [checkpoint(chunk_loss, part, use_reentrant=False, preserve_rng_state=False) for part in chunks]
        return torch.stack([loss for loss, _ in losses]).sum(), torch.cat([gold for _, gold in losses])


class CopyGate(nn.Module):
    """Mixes the vocabulary with a pointer into the source: p(y) = g p_vocabulary(y) + (1 − g) Σ_{s: x_s = y} α_s.

    See et al. 2017, eq. 8-9, over one vocabulary for both sides. The weight on `</s>`, and the rest if weights sum to
    less than one, go to the vocabulary too (the sentinel of Merity et al. 2017).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 1)

    def initialise(self) -> None:
        """Start with a large share for the vocabulary."""
        nn.init.constant_(self.gate.bias, 2.0)

    def forward(self, features: Tensor, log_probs: Tensor, weights: Tensor, src: Tensor, words: Tensor) -> Tensor:
        """features (N, F), log_probs (N, V), weights, src and the mask of its words (N, S) each -> (N, V)."""
        gate = self.gate(features).to(log_probs.dtype)  # (N, 1)
        shares = torch.sigmoid(-gate) * weights.to(log_probs.dtype) * words  # (N, S)
        copied = torch.zeros_like(log_probs).scatter_add(1, src, shares)  # (N, V)
        nowhere = (1.0 - (weights * words).sum(dim=-1, keepdim=True)).clamp(min=0.0).to(log_probs.dtype)  # (N, 1)
        rest = torch.sigmoid(gate) + torch.sigmoid(-gate) * nowhere  # (N, 1)
        tiny = torch.finfo(log_probs.dtype).tiny
        return torch.logaddexp(rest.clamp(min=tiny).log() + log_probs, copied.clamp(min=tiny).log())
