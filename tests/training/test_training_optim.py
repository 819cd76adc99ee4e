"""Learning rates as small tables, optimizer states that survive a file, and the mean of checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from translate.checkpoint import Run
from translate.config import TrainConfig
from translate.training.averaging import average_weights
from translate.training.optim import (
    LOWEST_SHARE,
    build_optimizer,
    learning_rate,
    optimizer_tensors,
    restore_optimizer,
)

PEAK = 0.5


def settings(**values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"steps": 100, "learning_rate": PEAK, "warmup": 4, **values})


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine", "plateau"])
@pytest.mark.parametrize(("step", "expected"), [(0, 1 / 4), (1, 2 / 4), (2, 3 / 4), (3, 1.0)])
def test_warm_up_rises_to_the_peak_in_equal_steps(schedule: str, step: int, expected: float) -> None:
    """The first update moves already, and the last of the warm-up has the full rate."""
    assert learning_rate(settings(schedule=schedule), step, step / 100, 0) == pytest.approx(PEAK * expected)


@pytest.mark.parametrize(
    ("schedule", "step", "share", "reductions", "expected"),
    [
        ("constant", 4, 0.04, 0, 1.0),
        ("constant", 99, 0.99, 3, 1.0),
        ("inverse_sqrt", 4, 0.04, 0, 1.0),  # goes on from where the warm-up of 4 ended
        ("inverse_sqrt", 16, 0.16, 0, 1 / 2),  # four times the updates, half the rate
        ("inverse_sqrt", 64, 0.64, 0, 1 / 4),
        ("cosine", 4, 0.04, 0, 1.0),  # the wave begins where the warm-up of 4 ended
        ("cosine", 52, 0.52, 0, (1 + LOWEST_SHARE) / 2),  # half-way between peak and floor
        ("cosine", 100, 1.0, 0, LOWEST_SHARE),
        ("cosine", 130, 1.3, 0, LOWEST_SHARE),  # the wave does not rise again
        ("plateau", 50, 0.5, 0, 1.0),
        ("plateau", 50, 0.5, 1, 1 / 2),
        ("plateau", 50, 0.5, 3, 1 / 8),
    ],
)
def test_learning_rates_after_warm_up(schedule: str, step: int, share: float, reductions: int, expected: float) -> None:
    assert learning_rate(settings(schedule=schedule), step, share, reductions) == pytest.approx(PEAK * expected)


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine", "plateau"])
@pytest.mark.parametrize("warmup", [0, 1, 4, 200])
def test_rates_rise_to_the_peak_and_never_after(schedule: str, warmup: int) -> None:
    config = settings(schedule=schedule, warmup=warmup)
    rates = [learning_rate(config, step, step / 100, 0) for step in range(100)]
    peak = rates.index(max(rates))
    assert all(0 < rate <= PEAK and math.isfinite(rate) for rate in rates)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert peak == min(max(warmup - 1, 0), 99)


def test_another_factor_for_the_plateau() -> None:
    config = settings(schedule="plateau", plateau_factor=0.1)
    assert learning_rate(config, 50, 0.5, 2) == pytest.approx(PEAK * 0.01)


def make_net() -> nn.Module:
    """Two layers that share a matrix, so that a parameter has two names."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 2))
    net[2].weight = net[0].weight
    return net


def update(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad(set_to_none=True)
    (net(inputs) ** 2).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_an_optimizer_goes_on_as_if_it_had_never_stopped(kind: str) -> None:
    config = settings(optimizer=kind, weight_decay=0.1, betas=(0.8, 0.95))
    straight = make_net()
    optimizer = build_optimizer(straight, config)
    for number in range(3):
        update(straight, optimizer, number)

    first = make_net()
    optimizer = build_optimizer(first, config)
    for number in range(2):
        update(first, optimizer, number)
    written = save(optimizer_tensors(optimizer, first))
    second = make_net()
    second.load_state_dict(first.state_dict())
    resumed = build_optimizer(second, config)
    restore_optimizer(resumed, second, load(written))
    update(second, resumed, 2)

    for (name, expected), found in zip(straight.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(found, expected), name
    assert resumed.param_groups[0]["betas"] == (0.8, 0.95)


def test_optimizer_tensors_carry_the_names_of_their_parameters() -> None:
    net = make_net()
    optimizer = build_optimizer(net, settings())
    assert optimizer_tensors(optimizer, net) == {}
    update(net, optimizer, 0)
    expected = {f"{name}/{key}" for name, _ in net.named_parameters() for key in ("step", "exp_avg", "exp_avg_sq")}
    assert set(optimizer_tensors(optimizer, net)) == expected


def test_weight_decay_is_decoupled_for_adamw_only() -> None:
    """Without a gradient AdamW still shrinks weights by rate × decay; Adam turns the decay into a full step."""
    moved = {}
    for kind in ("adam", "adamw"):
        net = nn.Linear(1, 1, bias=False)
        nn.init.ones_(net.weight)
        optimizer = build_optimizer(net, settings(optimizer=kind, weight_decay=0.2))
        net.weight.grad = torch.zeros(1, 1)
        optimizer.step()
        moved[kind] = net.weight.item()
    assert moved == {"adamw": pytest.approx(1 - PEAK * 0.2), "adam": pytest.approx(1 - PEAK)}


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    torch.manual_seed(0)
    run = Run(tmp_path)
    values = [{"a": torch.randn(2, 3), "b.c": torch.randn(4)} for _ in range(3)]
    checkpoints = [run.save(f"step-{i:08d}", tensors, {}, {}) for i, tensors in enumerate(values)]
    average = average_weights(checkpoints)
    assert average.keys() == values[0].keys()
    for name, found in average.items():
        expected = torch.stack([tensors[name].double() for tensors in values]).mean(dim=0)
        assert found.dtype == torch.float32
        assert torch.equal(found, expected.float())
        assert torch.equal(found, average_weights(checkpoints[::-1])[name])


def test_the_average_of_one_checkpoint_is_itself(tmp_path: Path) -> None:
    weights = {"a": torch.randn(2, 3)}
    assert torch.equal(average_weights([Run(tmp_path).save("step-00000001", weights, {}, {})])["a"], weights["a"])
