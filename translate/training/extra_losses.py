"""Losses besides cross entropy: coverage, the choices of hard attention, and given links."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from translate.config import AttentionConfig
from translate.models.state import Decoded

_LEAST = 1e-6  # added to a weight whose logarithm is taken: windows and sparsemax give exact zeros
_KNOWN = ("coverage", "choice", "entropy", "baseline")
_KEPT = 0.9  # of a running average, from one batch to the next


@dataclass
class RewardScale:
    """Running mean and deviation of rewards, and the deviation of rewards less the baseline."""

    mean: float = 0.0
    deviation: float = 1.0
    left: float = 1.0
    batches: int = 0

    def update(self, rewards: Tensor, left: Tensor) -> None:
        """Add a batch: rewards (N,), and `left`, rewards less the baseline in units of their deviation."""
        if not rewards.numel() or not bool(torch.isfinite(rewards).all() & torch.isfinite(left).all()):
            return  # the update will be skipped, and one NaN would stay in the averages for ever
        kept = _KEPT if self.batches else 0.0
        self.mean = kept * self.mean + (1 - kept) * float(rewards.mean())
        self.deviation = kept * self.deviation + (1 - kept) * max(float(rewards.std(correction=0)), 1e-3)
        self.left = kept * self.left + (1 - kept) * max(float(left.square().mean().sqrt()), 1e-3)
        self.batches += 1


def guided_loss(weights: Tensor, guide: Tensor, tgt_valid: Tensor) -> Tensor:
    """The cross entropy of attention (B, T, S) against given links, -Σ_s A_ts log α_ts, summed over real tokens."""
    terms = -(guide * (weights.float() + _LEAST).log()).sum(dim=2)  # (B, T)
    return terms[tgt_valid].sum()


def extra_losses(
    decoded: Decoded, gold: Tensor, tgt_valid: Tensor, config: AttentionConfig, scale: RewardScale
) -> dict[str, Tensor]:
    """Sums over the real tokens by name; `gold` (B, T) are the references' log probabilities.

    Terms of unknown names, from members of plugins, are summed without a weight.

    A draw of hard attention has the reward R_t = Σ_{t' ≥ t} log p(y_t') less a baseline (Xu et al. 2015, section 4.1).
    """
    terms, losses = decoded.loss_terms, dict[str, Tensor]()
    for name in terms:
        if name not in _KNOWN:
            losses[name] = terms[name][tgt_valid].sum()
    if "coverage" in terms:
        losses["coverage"] = config.coverage_loss * terms["coverage"][tgt_valid].sum()
    if "choice" in terms:
        reward = gold.flip(1).cumsum(dim=1).flip(1)[tgt_valid]  # (N,)
        if not scale.batches:
            scale.update(reward, torch.ones_like(reward))
        left = (reward - scale.mean) / scale.deviation - terms["baseline"][tgt_valid]  # (N,), with the baseline's grad
        losses["choice"] = -(left.detach() / scale.left * terms["choice"][tgt_valid]).sum()
        losses["baseline"] = left.square().sum() / 2
        losses["entropy"] = -config.entropy * terms["entropy"][tgt_valid].sum()
        scale.update(reward, left.detach())
    return losses
