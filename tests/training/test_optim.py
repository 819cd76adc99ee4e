"""Learning rates as small tables, optimizer states that survive a file, and the mean of checkpoints."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from translate.config import TrainConfig, choices
from translate.run.directory import Run
from translate.training.averaging import MovingAverage, average_weights, named_raw, split_raw
from translate.training.optim import (
    LOWEST_SHARE,
    OPTIMIZERS,
    build_optimizer,
    learning_rate,
    optimizer_tensors,
    restore_optimizer,
)

PEAK = 0.5
SCHEDULES = choices(TrainConfig, "schedule")


def settings(**values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"steps": 100, "learning_rate": PEAK, "warmup": 4, **values})


@pytest.mark.parametrize("schedule", SCHEDULES)
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


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 4, 200])
def test_rates_rise_to_the_peak_and_never_after(schedule: str, warmup: int) -> None:
    config = settings(schedule=schedule, warmup=warmup)
    rates = [learning_rate(config, step, step / 100, 0) for step in range(100)]
    peak = rates.index(max(rates))
    assert all(0 < rate <= PEAK and math.isfinite(rate) for rate in rates)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert peak == min(max(warmup - 1, 0), 99)


@pytest.mark.parametrize(
    ("step", "halvings"),
    [(0, 0), (9, 0), (10, 1), (12, 1), (13, 2), (15, 2), (16, 3), (10 + 3 * 9, 10), (10**6, 333_331)],
)
def test_halving_begins_after_some_updates_and_goes_on(step: int, halvings: int) -> None:
    config = settings(schedule="halving", halve_after=10, halve_every=3, warmup=0)
    assert learning_rate(config, step, step / 100, 0) == PEAK * 0.5**halvings


def test_another_factor_for_the_plateau() -> None:
    config = settings(schedule="plateau", plateau_factor=0.1)
    assert learning_rate(config, 50, 0.5, 2) == pytest.approx(PEAK * 0.01)


def make_net() -> nn.Sequential:
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


WAYS = [*({"optimizer": kind} for kind in OPTIMIZERS), {"optimizer": "sgd", "momentum": 0.9}]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_an_optimizer_goes_on_as_if_it_had_never_stopped(way: dict[str, Any]) -> None:
    config = settings(**way, weight_decay=0.1, betas=(0.8, 0.95), learning_rate=0.01)
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
    if "adam" in way["optimizer"]:
        assert resumed.param_groups[0]["betas"] == (0.8, 0.95)


@pytest.mark.parametrize(
    ("way", "keys"),
    [
        ({"optimizer": "adam"}, ("step", "exp_avg", "exp_avg_sq")),
        ({"optimizer": "adadelta"}, ("step", "square_avg", "acc_delta")),
        ({"optimizer": "sgd", "momentum": 0.9}, ("momentum_buffer",)),
        ({"optimizer": "sgd"}, ()),
    ],
)
def test_optimizer_tensors_carry_the_names_of_their_parameters(way: dict[str, Any], keys: tuple[str, ...]) -> None:
    net = make_net()
    optimizer = build_optimizer(net, settings(**way))
    assert optimizer_tensors(optimizer, net) == {}
    update(net, optimizer, 0)
    expected = {f"{name}/{key}" for name, _ in net.named_parameters() for key in keys}
    assert set(optimizer_tensors(optimizer, net)) == expected


def steps_of(count: int, gradient: float, **values: Any) -> float:
    """Where a weight of 1 stands after some steps with the same gradient."""
    net = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(net.weight)
    optimizer = build_optimizer(net, settings(**values))
    for _ in range(count):
        net.weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        optimizer.step()
    return net.weight.item()


def test_sgd_by_hand() -> None:
    assert steps_of(2, 0.25, optimizer="sgd") == pytest.approx(1 - 2 * PEAK * 0.25)
    assert steps_of(2, 0.25, optimizer="sgd", momentum=0.5) == pytest.approx(1 - PEAK * 0.25 - PEAK * 0.375)
    assert steps_of(1, 0.25, optimizer="sgd", weight_decay=0.5) == pytest.approx(1 - PEAK * (0.25 + 0.5))


def test_adadelta_by_hand() -> None:
    """Zeiler 2012, algorithm 1."""
    rho, epsilon, gradient, decay = 0.8, 0.01, 0.25, 0.5
    weight, squares, deltas = 1.0, 0.0, 0.0
    for _ in range(3):
        decayed = gradient + decay * weight
        squares = rho * squares + (1 - rho) * decayed**2
        delta = math.sqrt(deltas + epsilon) / math.sqrt(squares + epsilon) * decayed
        deltas = rho * deltas + (1 - rho) * delta**2
        weight -= PEAK * delta
    found = steps_of(3, gradient, optimizer="adadelta", rho=rho, epsilon=epsilon, weight_decay=decay)
    assert found == pytest.approx(weight)


@pytest.mark.parametrize(("kind", "default"), [("adam", 1e-8), ("adamw", 1e-8), ("adadelta", 1e-6)])
def test_epsilon_and_its_defaults(kind: str, default: float) -> None:
    tiny = 1e-6  # a gradient so small that epsilon decides
    assert steps_of(1, tiny, optimizer=kind) == steps_of(1, tiny, optimizer=kind, epsilon=default)
    assert steps_of(1, tiny, optimizer=kind) != steps_of(1, tiny, optimizer=kind, epsilon=10 * default)


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


def test_the_moving_average_by_hand() -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    average = MovingAverage(net, decay=0.5)
    expected = [parameter.detach().double() for parameter in net.parameters()]
    for count, decay in ((1, 2 / 11), (2, 3 / 12), (3, 4 / 13), (4, 5 / 14), (50, 0.5), (51, 0.5)):
        for parameter in net.parameters():
            nn.init.normal_(parameter)
        average.update(count)
        expected = [
            decay * mean + (1 - decay) * parameter.detach()
            for mean, parameter in zip(expected, net.parameters(), strict=True)
        ]
        with average.in_place():
            for mean, parameter in zip(expected, net.parameters(), strict=True):
                torch.testing.assert_close(parameter.detach().double(), mean, rtol=1e-5, atol=1e-6)


def test_the_weights_behind_the_average_come_back_where_they_were() -> None:
    net = make_net()
    average = MovingAverage(net, decay=0.9)
    update(net, build_optimizer(net, settings()), 0)
    before = {name: (value.data_ptr(), value.clone()) for name, value in net.state_dict().items()}
    with contextlib.suppress(KeyboardInterrupt), average.in_place():
        assert not torch.equal(net[0].weight, before["0.weight"][1])
        assert net[2].weight is net[0].weight
        raise KeyboardInterrupt
    for name, value in net.state_dict().items():
        place, content = before[name]
        assert value.data_ptr() == place
        assert torch.equal(value, content)


def test_weights_beside_the_optimizers_tensors() -> None:
    weights, others = {"a.raw": torch.ones(2), "b": torch.zeros(3)}, {"b/exp_avg": torch.ones(3)}
    assert split_raw({**others, **named_raw(weights)}) == (weights, others)
    assert split_raw(others) == ({}, others)
