"""Weights and values that a loop uses many times: their gradients are formed once, and are what autograd would give."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from small_models import check_close, sample
from torch import Tensor

from translate.models.loops import Product, Room, _stacked, cached_slices, cut, mix, one_gradient
from translate.models.recurrence import Layer, _GruUnrolled, _GruUpdate

ROWS, WIDTH, SOURCES, GROUPS = 3, 4, 5, 2
STEPS = 6


def make_product(bias: bool = True, width: int = WIDTH) -> Product:
    torch.manual_seed(1)
    return Product(width, width, bias=bias).double()


def run(product: Product, start: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """A loop in which every step needs the one before, products and sums of values in turn."""
    state = start  # (B, W)
    for t in range(STEPS):
        context = mix(weights[t], values).transpose(1, 2).reshape(ROWS, WIDTH)  # (B, W)
        state = torch.tanh(product(state + context)) + product(context)
    return state


def leaves() -> list[Tensor]:
    return [
        sample(ROWS, WIDTH, seed=2).requires_grad_(),
        sample(ROWS, GROUPS, SOURCES, WIDTH // GROUPS, seed=3).requires_grad_(),
        sample(STEPS, ROWS, GROUPS, 1, SOURCES, seed=4).requires_grad_(),
    ]


def gradients(
    product: Product, given: list[Tensor], loop: AbstractContextManager[None], wanted: list[Tensor] | None = None
) -> list[Tensor]:
    with loop:
        found = run(product, given[0], given[1], given[2])
    direction = sample(*found.shape, seed=5)
    return list(torch.autograd.grad((found * direction).sum(), wanted or [*given, *product.parameters()]))


@pytest.mark.parametrize("bias", [True, False])
def test_a_loop_gives_autograds_gradients(bias: bool) -> None:
    product, given = make_product(bias), leaves()
    for one, other in zip(
        gradients(product, given, one_gradient()), gradients(product, given, nullcontext()), strict=True
    ):
        check_close(one, other)


def test_the_weights_gradient_is_one_product() -> None:
    """Twelve uses, and only one tensor of the weight's shape ever comes to it."""
    product, given = make_product(), leaves()
    came: list[int] = []
    product.weight.register_hook(lambda gradient: came.append(1))
    with one_gradient():
        run(product, given[0], given[1], given[2]).sum().backward()
    assert came == [1]
    assert product.weight.grad is not None


def test_a_part_of_the_gradients_and_then_all() -> None:
    """What a backward pass leaves that did not come to the weight is not taken up by the next one."""
    product, given = make_product(), leaves()
    with one_gradient():
        found = run(product, given[0], given[1], given[2]).sum()
    torch.autograd.grad(found, given[0], retain_graph=True)
    first = torch.autograd.grad(found, list(product.parameters()), retain_graph=True)
    again = torch.autograd.grad(found, list(product.parameters()))
    with nullcontext():
        plain = run(product, given[0], given[1], given[2]).sum()
    expected = torch.autograd.grad(plain, list(product.parameters()))
    for ones, others in ((first, expected), (again, expected)):
        for one, other in zip(ones, others, strict=True):
            check_close(one, other)


def test_a_loop_in_a_loop_and_one_after_the_other() -> None:
    product, given = make_product(), leaves()
    with one_gradient():
        with one_gradient():
            inner = run(product, given[0], given[1], given[2])
        outer = run(product, inner, given[1], given[2])
    with one_gradient():
        found = run(product, outer, given[1], given[2])
    expected = given[0]
    for _ in range(3):
        expected = run(product, expected, given[1], given[2])
    check_close(found, expected)
    wanted = [*given, *product.parameters()]
    for one, other in zip(
        torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(expected.sum(), wanted), strict=True
    ):
        check_close(one, other)


def test_without_gradients_and_with_frozen_weights() -> None:
    product, given = make_product(), leaves()
    with torch.no_grad(), one_gradient():
        assert not run(product, given[0], given[1], given[2]).requires_grad
    product.requires_grad_(False)
    for one, other in zip(
        gradients(product, given, one_gradient(), given), gradients(product, given, nullcontext(), given), strict=True
    ):
        check_close(one, other)


@pytest.mark.parametrize("width", [512, 1024, 1536])
def test_rows_that_would_meet_in_the_cache_are_laid_apart(width: int) -> None:
    torch.manual_seed(1)
    product, inputs = Product(width, 8), torch.randn(2, width, requires_grad=True)
    with one_gradient():
        found = product(inputs)
    torch.testing.assert_close(found, F.linear(inputs, product.weight, product.bias))
    torch.testing.assert_close(torch.autograd.grad(found.sum(), inputs)[0], product.weight.sum(0).expand(2, -1))


def test_the_gru_has_the_derivative_that_is_written_out() -> None:
    gates = [sample(ROWS, 3 * WIDTH, seed=seed).requires_grad_() for seed in (6, 7)]
    before = sample(ROWS, WIDTH, seed=8).requires_grad_()
    assert torch.autograd.gradcheck(_GruUpdate.apply, (*gates, before))
    inputs, start = sample(5, ROWS, 2, seed=9).requires_grad_(), sample(ROWS, WIDTH, seed=10).requires_grad_()
    shapes = ((3 * WIDTH, 2), (3 * WIDTH, WIDTH), (3 * WIDTH,), (3 * WIDTH,))
    weights = [sample(*shape, seed=11 + index).requires_grad_() for index, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(_GruUnrolled.apply, (inputs, start, *weights))


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
@pytest.mark.parametrize("width", [0, 1, 70_000, 1 << 20])
def test_slices_are_all_rows_in_order_and_stay_in_the_cache(rows: int, width: int) -> None:
    slices = cached_slices(rows, width, torch.device("cpu"))
    assert [row for some in slices for row in range(some.start, some.stop)] == list(range(rows))
    assert all((some.stop - some.start) * width <= 1 << 18 or some.stop - some.start == 1 for some in slices)
    assert len(cached_slices(rows, width, torch.device("meta"))) == min(rows, 1)


def through_grus(layers: list[Layer], table: Tensor, start: Tensor, sizes: list[int]) -> Tensor:
    """A loop over two GRUs from which rows leave; all its states, one after the other."""
    state, found = start, []
    for gates in cut(table, sizes):
        for layer in layers:
            (state,) = layer.step(gates, None, (state[: len(gates)],))
        found.append(state)
    return torch.cat(found)


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_that_lie_side_by_side_are_autograds(passes: int) -> None:
    torch.manual_seed(1)
    layers = [Layer(2, 0, WIDTH, "gru", norm=False).double() for _ in range(2)]
    sizes = [ROWS, ROWS, 2, 1]
    table = sample(sum(sizes), 3 * WIDTH, seed=2).requires_grad_()
    start = sample(ROWS, WIDTH, seed=3).requires_grad_()
    wanted = [table, start, *(weight for layer in layers for weight in layer.recurrent.parameters())]
    direction = sample(sum(sizes), WIDTH, seed=4)
    expected = torch.autograd.grad((through_grus(layers, table, start, sizes) * direction).sum(), wanted)
    with one_gradient():
        total = (through_grus(layers, table, start, sizes) * direction).sum()
    for _ in range(passes):
        for one, other in zip(torch.autograd.grad(total, wanted, retain_graph=True), expected, strict=True):
            check_close(one, other)


def test_a_room_is_filled_without_a_gap_and_left_empty() -> None:
    room, like = Room(), torch.zeros(1)
    places = [room.place(rows) for rows in (3, 3, 2)]
    written = [room.at(place, 5, like).fill_(value) for value, place in reversed(list(enumerate(places)))]
    for kind in range(2):
        joined = _stacked([one[kind] for one in reversed(written)])
        assert joined.data_ptr() == written[-1][kind].data_ptr()
        assert joined[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert room._tables == {}


def test_what_does_not_lie_side_by_side_is_copied_together() -> None:
    table = sample(6, 4, seed=1)
    for parts in (
        [table[:2], table[3:]],  # a gap
        [table[3:], table[:3]],  # the wrong order
        [table[:3], table[3:].clone()],  # another place
        [table[:3, :2], table[3:, :2]],  # parts of rows
        list(table.t().split(2)),
    ):
        joined = _stacked(parts)
        assert torch.equal(joined, torch.cat(parts))
        assert joined.data_ptr() != parts[0].data_ptr()
    assert _stacked(table.split(2)).data_ptr() == table.data_ptr()
    assert torch.equal(_stacked(table.split(2)), table)
