"""Weights and values that a loop uses many times: their gradients are formed once, and are what autograd would give."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.kernel_inputs import check_all_close, check_close, every_processor, in_float32, sample, use_processor
from translate.kernels import FastLinear, plain, share_gradients, weighted_sum

ROWS, WIDTH, SOURCES, GROUPS = 3, 4, 5, 2
STEPS = 6


def make_linear(bias: bool = True, width: int = WIDTH) -> FastLinear:
    torch.manual_seed(1)
    return FastLinear(width, width, bias=bias).double()


def run(linear: FastLinear, start: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """A loop in which every step needs the one before, products and sums of values in turn."""
    state = start  # (B, W)
    for t in range(STEPS):
        context = weighted_sum(weights[t], values).transpose(1, 2).reshape(ROWS, WIDTH)  # (B, W)
        state = torch.tanh(linear(state + context)) + linear(context)
    return state


def leaves() -> list[Tensor]:
    return [
        sample(ROWS, WIDTH, seed=2).requires_grad_(),
        sample(ROWS, GROUPS, SOURCES, WIDTH // GROUPS, seed=3).requires_grad_(),
        sample(STEPS, ROWS, GROUPS, 1, SOURCES, seed=4).requires_grad_(),
    ]


def gradients(
    linear: FastLinear, given: list[Tensor], loop: AbstractContextManager[None], wanted: list[Tensor] | None = None
) -> list[Tensor]:
    with loop:
        found = run(linear, given[0], given[1], given[2])
    direction = sample(*found.shape, seed=5)
    return list(torch.autograd.grad((found * direction).sum(), wanted or [*given, *linear.parameters()]))


@pytest.mark.parametrize("bias", [True, False])
def test_a_loop_gives_autograds_gradients(bias: bool) -> None:
    linear, given = make_linear(bias), leaves()
    with plain():
        expected = gradients(linear, given, nullcontext())
    check_all_close(gradients(linear, given, share_gradients()), expected)
    check_all_close(gradients(linear, given, nullcontext()), expected)


def test_the_weights_gradient_is_one_product() -> None:
    """Twelve uses, and only one tensor of the weight's shape ever comes to it."""
    linear, given = make_linear(), leaves()
    came: list[int] = []
    linear.weight.register_hook(lambda gradient: came.append(1))
    with share_gradients():
        run(linear, given[0], given[1], given[2]).sum().backward()
    assert came == [1]
    assert linear.weight.grad is not None


def test_a_part_of_the_gradients_and_then_all() -> None:
    """What a backward pass leaves that did not come to the weight is not taken up by the next one."""
    linear, given = make_linear(), leaves()
    with share_gradients():
        found = run(linear, given[0], given[1], given[2]).sum()
    torch.autograd.grad(found, given[0], retain_graph=True)
    first = torch.autograd.grad(found, list(linear.parameters()), retain_graph=True)
    again = torch.autograd.grad(found, list(linear.parameters()))
    with plain():
        expected = torch.autograd.grad(run(linear, given[0], given[1], given[2]).sum(), list(linear.parameters()))
    check_all_close(first, expected)
    check_all_close(again, expected)


def test_a_loop_in_a_loop_and_one_after_the_other() -> None:
    linear, given = make_linear(), leaves()
    with share_gradients():
        with share_gradients():
            inner = run(linear, given[0], given[1], given[2])
        outer = run(linear, inner, given[1], given[2])
    with share_gradients():
        found = run(linear, outer, given[1], given[2])
    expected = given[0]
    with plain():
        for _ in range(3):
            expected = run(linear, expected, given[1], given[2])
    check_close(found, expected)
    wanted = [*given, *linear.parameters()]
    check_all_close(torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(expected.sum(), wanted))


def test_without_gradients_and_with_frozen_weights() -> None:
    linear, given = make_linear(), leaves()
    with torch.no_grad(), share_gradients():
        assert not run(linear, given[0], given[1], given[2]).requires_grad
    linear.requires_grad_(False)
    check_all_close(gradients(linear, given, share_gradients(), given), gradients(linear, given, nullcontext(), given))


def test_with_and_without_its_bias_a_map_shares_one_loop() -> None:
    linear, start = make_linear(), sample(ROWS, WIDTH, seed=2).requires_grad_()

    def found(loop: AbstractContextManager[None]) -> list[Tensor]:
        state = start
        with loop:
            for _ in range(STEPS):
                state = torch.tanh(linear(state) + linear.without_bias(start))
        return list(torch.autograd.grad((state**2).sum(), [start, *linear.parameters()]))

    check_all_close(found(share_gradients()), found(nullcontext()))


def test_autocast_keeps_its_own_way() -> None:
    linear, inputs = FastLinear(WIDTH, WIDTH), in_float32(ROWS, WIDTH, seed=1)
    with share_gradients():
        assert linear.shared(inputs) is not None
        with torch.autocast("cpu", torch.bfloat16):
            assert linear.shared(inputs) is None
            assert linear(inputs).dtype == torch.bfloat16
    assert linear.shared(inputs) is None


@pytest.mark.parametrize("width", [512, 1024, 1536])
@every_processor
def test_rows_that_would_meet_in_the_cache_are_kept_apart(
    processor: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, processor)
    torch.manual_seed(1)
    linear, inputs = FastLinear(width, 8), torch.randn(2, width, requires_grad=True)
    with share_gradients():
        first, found = linear(inputs), linear(inputs)
    torch.testing.assert_close(first, F.linear(inputs, linear.weight, linear.bias))
    torch.testing.assert_close(found, F.linear(inputs, linear.weight, linear.bias))
    (grad,) = torch.autograd.grad((first + found).sum(), inputs)
    torch.testing.assert_close(grad, 2 * linear.weight.sum(0).expand(2, -1))


@every_processor
def test_a_loop_in_float32_has_autograds_gradients(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, processor)
    torch.manual_seed(1)
    linear, start = FastLinear(40, 40), in_float32(7, 40, seed=2)

    def found(loop: AbstractContextManager[object]) -> list[Tensor]:
        given = start.clone().requires_grad_()
        state = given
        with loop:
            for _ in range(4):
                state = torch.tanh(linear(state) + linear.without_bias(given))
        return list(torch.autograd.grad((state**2).sum(), [given, *linear.parameters()]))

    for one, other in zip(found(share_gradients()), found(plain()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_sums_of_several_steps_share_the_gradient_of_the_values() -> None:
    values = sample(4, GROUPS, SOURCES, 3, seed=1).requires_grad_()
    weights = [sample(4, GROUPS, queries, SOURCES, seed=queries).requires_grad_() for queries in (1, 1, 3)]

    def found(loop: AbstractContextManager[None]) -> list[Tensor]:
        with loop:
            sums = [weighted_sum(some, values) for some in weights]
        total = sum((one * sample(*one.shape, seed=index)).sum() for index, one in enumerate(sums))
        return [*sums, *torch.autograd.grad(total, [values, *weights])]

    came: list[int] = []
    with plain():
        expected = found(nullcontext())
    values.register_hook(lambda gradient: came.append(1))
    check_all_close(found(share_gradients()), expected)
    assert came == [1]
