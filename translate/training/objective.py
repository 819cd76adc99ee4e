"""The training objective as one module, so that DistributedDataParallel can wrap it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translate.config import Config
from translate.data.batches import Batch
from translate.models.seq2seq import Seq2Seq
from translate.training.extra_losses import RewardScale, extra_losses, guided_loss
from translate.training.loss import sequence_loss
from translate.training.teacher_forcing import decode_mixed


class Objective(nn.Module):
    """The losses of a batch."""

    def __init__(self, model: Seq2Seq, config: Config) -> None:
        super().__init__()
        self.model = model
        self.smoothing = config.train.label_smoothing
        self.forcing = config.train.teacher_forcing
        self.attention = config.model.attention
        self.guided = config.train.guided.weight

    def forward(
        self, batch: Batch, ratio: float, share: float, rewards: RewardScale, guide: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The summed loss of a batch and the sum of its extra losses; faster if all inputs are the reference.

        `ratio` is that of teacher forcing, `share` the used part of the budget, `guide` (B, T, S) the target weights.
        """
        source = self.model.encode(batch.src, batch.src_valid, batch.src_lengths, share)
        if ratio >= 1.0:
            decoded = self.model.decoder(batch.tgt_in, source)
        else:
            decoded = decode_mixed(self.model, source, batch.tgt_in, ratio, self.forcing, torch.default_generator)
        loss = sequence_loss(self.model, decoded, source, batch.tgt_out, batch.tgt_valid, self.smoothing)
        extra = extra_losses(decoded, loss.gold, batch.tgt_valid, self.attention, rewards)
        if guide is not None:
            assert decoded.weights is not None, "the configuration refuses a guide without attention"
            extra["guided"] = self.guided * guided_loss(decoded.weights, guide, batch.tgt_valid)
        return loss.smoothed, sum(extra.values(), torch.zeros_like(loss.smoothed))
