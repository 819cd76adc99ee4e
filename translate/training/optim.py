"""Optimizers, learning rates, and both as plain tensors and numbers that a checkpoint can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from translate.config import TrainConfig

OPTIMIZERS: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
LOWEST_SHARE = 0.01  # of the peak learning rate, where the cosine ends


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of a run; fused where the device has it."""
    parameters = list(model.parameters())
    return OPTIMIZERS[config.optimizer](
        parameters,
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=parameters[0].device.type == "cuda",
    )


def learning_rate(config: TrainConfig, step: int, share: float, reductions: int) -> float:
    """The learning rate of update `step` (from 0), with `share` of the budget used and `reductions` plateaus so far."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * math.sqrt(max(1, config.warmup) / max(1, step))
    if config.schedule == "cosine":
        warm = share * config.warmup / max(1, step)  # the share of the budget that the warm-up took
        wave = (1 + math.cos(math.pi * min(1.0, (share - warm) / max(1.0 - warm, 1e-9)))) / 2
        return config.learning_rate * (LOWEST_SHARE + (1 - LOWEST_SHARE) * wave)
    assert config.schedule == "plateau"
    return config.learning_rate * config.plateau_factor**reductions


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as tensors named PARAMETER/KEY."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = value.detach().cpu().contiguous()
    return tensors


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, _) in enumerate(model.named_parameters()):
        prefix = f"{name}/"
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if own:
            state[index] = own
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
