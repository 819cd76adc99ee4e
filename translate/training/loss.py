"""Cross entropy over real target tokens, in chunks whose size does not depend on batch or vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource

MOST_ELEMENTS = 1 << 24  # of the (rows, V) tensor of log probabilities that exist at once


def sequence_loss(
    model: Seq2Seq, decoded: Decoded, source: EncodedSource, tgt_out: Tensor, tgt_valid: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sums over the real tokens of a batch: the loss with label smoothing, and the plain negative log likelihood.

    Label smoothing spreads its share evenly over the vocabulary (Szegedy et al. 2016): padding never gets here.
    """
    features = decoded.features[tgt_valid]  # (N, F)
    weights = None if decoded.weights is None else decoded.weights[tgt_valid]  # (N, S)
    targets = tgt_out[tgt_valid]  # (N,)
    rows = max(1, MOST_ELEMENTS // model.decoder.out.bias.numel())

    def chunk_loss(chunk_features: Tensor, chunk_weights: Tensor | None, chunk_targets: Tensor) -> Tensor:
        log_probs = model.decoder.output(chunk_features, chunk_weights, source)  # (n, V)
        nll = -log_probs.gather(1, chunk_targets.unsqueeze(1)).sum()
        spread = -log_probs.mean(dim=1).sum() if smoothing else nll
        return torch.stack([(1 - smoothing) * nll + smoothing * spread, nll.detach()])

    if len(targets) <= rows:
        total = chunk_loss(features, weights, targets)
    else:
        # Several chunks: each is computed again in the backward pass, so that only one is ever held.
        total = torch.stack(
            [
                checkpoint(
                    chunk_loss,
                    features[i : i + rows],
                    None if weights is None else weights[i : i + rows],
                    targets[i : i + rows],
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
                for i in range(0, len(targets), rows)
            ]
        ).sum(dim=0)
    return total[0], total[1].detach()
