"""Optimizers and learning rates, and an optimizer's state as tensors for a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer

from translate.config import TrainConfig

LOWEST_SHARE = 0.01  # of the peak learning rate, where the cosine ends


def _adam(parameters: list[nn.Parameter], config: TrainConfig, fused: bool) -> Optimizer:
    rate, decay, epsilon = config.learning_rate, config.weight_decay, config.epsilon or 1e-8
    return Adam(parameters, rate, config.betas, epsilon, decay, fused=fused)


def _adamw(parameters: list[nn.Parameter], config: TrainConfig, fused: bool) -> Optimizer:
    rate, decay, epsilon = config.learning_rate, config.weight_decay, config.epsilon or 1e-8
    return AdamW(parameters, rate, config.betas, epsilon, decay, fused=fused)


def _sgd(parameters: list[nn.Parameter], config: TrainConfig, fused: bool) -> Optimizer:
    return SGD(parameters, config.learning_rate, config.momentum, weight_decay=config.weight_decay, fused=fused)


def _adadelta(parameters: list[nn.Parameter], config: TrainConfig, fused: bool) -> Optimizer:
    """Zeiler 2012; torch has no fused one."""
    return Adadelta(parameters, config.learning_rate, config.rho, config.epsilon or 1e-6, config.weight_decay)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], TrainConfig, bool], Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "adadelta": _adadelta,
}


def build_optimizer(model: nn.Module, config: TrainConfig) -> Optimizer:
    """The optimizer of a run; fused where the device has it."""
    parameters = list(model.parameters())
    return OPTIMIZERS[config.optimizer](parameters, config, parameters[0].device.type in ("cuda", "cpu"))


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
    if config.schedule == "halving":  # Luong et al. 2015
        return config.learning_rate * 0.5 ** max(0, 1 + (step - config.halve_after) // config.halve_every)
    assert config.schedule == "plateau"
    return config.learning_rate * config.plateau_factor**reductions


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as tensors named PARAMETER/KEY."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = value.detach().cpu().contiguous()
    return tensors


def restore_optimizer(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state from the tensors of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, _) in enumerate(model.named_parameters()):
        prefix = f"{name}/"
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if own:
            state[index] = own
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
