"""Every kernel against its plain twin: values and gradients, in both precisions, alone and in a loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import compress
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.kernels.kernel_inputs import PROCESSORS, gradients, sample, use_processor
from translate.kernels import KERNELS, FastLinear, additive, plain, share_gradients, slices, vocabulary

Call = Callable[..., Any]  # the kernel or its twin, and the leaves -> what it gives


class Case(NamedTuple):
    """What a kernel is called with."""

    leaves: list[Tensor]  # what has a gradient
    call: Call
    needs_gradient: bool = True


def leaf(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return sample(*shape, seed=seed, dtype=dtype).requires_grad_()


def linear_map(inputs: int, outputs: int, seed: int, dtype: torch.dtype, bias: bool = True) -> FastLinear:
    """A map whose every number is random."""
    made = FastLinear(inputs, outputs, bias=bias).to(dtype)
    with torch.no_grad():
        for index, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * sample(*parameter.shape, seed=seed + index))
    return made


def linear_case(dtype: torch.dtype, shape: tuple[int, ...], outputs: int, bias: bool = True) -> Case:
    inputs, weight = leaf(*shape, seed=1, dtype=dtype), leaf(outputs, shape[-1], seed=2, dtype=dtype)
    biases = [leaf(outputs, seed=3, dtype=dtype)] if bias else []
    return Case([inputs, weight, *biases], lambda f, *given: f(*given))


def sum_case(dtype: torch.dtype, groups: int, queries: int, positions: int, width: int) -> Case:
    weights = leaf(5, groups, queries, positions, seed=1, dtype=dtype)
    values = leaf(5, groups, positions, width, seed=2, dtype=dtype)
    return Case([weights, values], lambda f, *given: f(*given))


def additive_case(dtype: torch.dtype, batch: int, groups: int, queries: int, positions: int, width: int) -> Case:
    query = leaf(batch, groups, queries, width, seed=1, dtype=dtype)
    keys = leaf(batch, groups, positions, width, seed=2, dtype=dtype)
    v = leaf(groups, width, seed=3, dtype=dtype)
    return Case([query, keys, v], lambda f, *given: f(*given))


def mask_case(dtype: torch.dtype, share: float, *shape: int) -> Case:
    return Case([sample(*shape, seed=1, dtype=dtype)], lambda f, values: f(values, share), needs_gradient=False)


def unrolled_case(
    dtype: torch.dtype, gates: int, batch: int, steps: int, inputs: int, width: int, extra: int = 0
) -> Case:
    """Of a GRU with three gates, or an LSTM with four and a cell."""
    given = linear_map(inputs, gates * width, 3, dtype)
    recurrent = linear_map(width, gates * width, 5, dtype)
    added = linear_map(extra, gates * width, 7, dtype, bias=False) if extra else None
    parameters = [p for part in (given, recurrent, added) if part is not None for p in part.parameters()]
    table = leaf(batch, steps, inputs + extra, seed=1, dtype=dtype)
    starts = [leaf(batch, width, seed=10 + i, dtype=dtype) for i in range(gates - 2)]  # h, and of an LSTM c
    count = len(starts)
    return Case([table, *starts, *parameters], lambda f, table, *more: f(table, *more[:count], given, recurrent, added))


def softmax_case(dtype: torch.dtype, *shape: int) -> Case:
    logits, bias = leaf(*shape, seed=1, dtype=dtype), leaf(shape[-1], seed=2, dtype=dtype)
    return Case([logits, bias], lambda f, logits, bias: f(logits * 1, bias))  # a copy, which it may overwrite


def loss_case(dtype: torch.dtype, tokens: int, width: int, size: int, smoothing: float) -> Case:
    features = leaf(tokens, width, seed=1, dtype=dtype)
    weight, bias = leaf(size, width, seed=2, dtype=dtype), leaf(size, seed=3, dtype=dtype)
    targets = torch.randint(0, size, (tokens,), generator=torch.Generator().manual_seed(4))
    return Case(
        [features, weight, bias], lambda f, features, weight, bias: f(features, weight, bias, targets, smoothing)
    )


Make = Callable[[torch.dtype], Case]
CASES: dict[str, list[Make]] = {
    "linear": [
        lambda d: linear_case(d, (5, 7), 3),
        lambda d: linear_case(d, (2, 3, 9), 4, bias=False),
        lambda d: linear_case(d, (0, 5), 2),
        lambda d: linear_case(d, (1, 1), 1),
        lambda d: linear_case(d, (131, 33), 17),
    ],
    "weighted_sum": [
        lambda d: sum_case(d, groups=1, queries=1, positions=5, width=7),
        lambda d: sum_case(d, groups=2, queries=3, positions=4, width=5),
        lambda d: sum_case(d, groups=1, queries=1, positions=1, width=1),
    ],
    "additive_score": [
        lambda d: additive_case(d, batch=3, groups=1, queries=1, positions=5, width=7),
        lambda d: additive_case(d, batch=2, groups=1, queries=3, positions=4, width=5),
        lambda d: additive_case(d, batch=2, groups=2, queries=3, positions=4, width=3),
        lambda d: additive_case(d, batch=1, groups=1, queries=1, positions=1, width=1),
        lambda d: additive_case(d, batch=0, groups=1, queries=2, positions=3, width=4),
    ],
    "dropout_mask": [
        lambda d: mask_case(d, 0.3, 401, 503),
        lambda d: mask_case(d, 0.5, 40_001),
        lambda d: mask_case(d, 0.1, 7, 101, 103),
    ],
    "gru": [
        lambda d: unrolled_case(d, 3, batch=3, steps=4, inputs=5, width=7),
        lambda d: unrolled_case(d, 3, batch=1, steps=1, inputs=1, width=1),
        lambda d: unrolled_case(d, 3, batch=5, steps=3, inputs=2, width=3, extra=4),
    ],
    "lstm": [
        lambda d: unrolled_case(d, 4, batch=3, steps=4, inputs=5, width=7),
        lambda d: unrolled_case(d, 4, batch=1, steps=1, inputs=1, width=1),
        lambda d: unrolled_case(d, 4, batch=5, steps=3, inputs=2, width=3, extra=4),
    ],
    "log_softmax": [
        lambda d: softmax_case(d, 5, 19),
        lambda d: softmax_case(d, 2, 3, 7),
        lambda d: softmax_case(d, 1, 1),
        lambda d: softmax_case(d, 0, 3),
    ],
    "vocabulary_loss": [
        lambda d: loss_case(d, tokens=13, width=5, size=19, smoothing=0.0),
        lambda d: loss_case(d, tokens=7, width=9, size=11, smoothing=0.1),
        lambda d: loss_case(d, tokens=1, width=1, size=2, smoothing=0.7),
        lambda d: loss_case(d, tokens=0, width=3, size=5, smoothing=0.1),
    ],
}
KINDS = [(name, index) for name, cases in CASES.items() for index in range(len(cases))]
ONE_BACKWARD_PASS = {"vocabulary_loss"}  # it forms its gradient on the way forward, and gives it away
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def has_derivative(name: str, index: int) -> bool:
    case = CASES[name][index](torch.float64)
    return case.needs_gradient and case.leaves[0].numel() > 0


def tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def results(call: Call, function: Callable[..., Any], leaves: list[Tensor], times: int) -> list[Tensor]:
    """What one or several calls give."""
    return [tensor for _ in range(times) for tensor in tensors(call(function, *leaves))]


def check(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def check_equal_given_the_mask(name: str, case: Case) -> None:
    """Both draw anew: the share that is dropped and the scale of the rest are alike, and so are shape and precision."""
    torch.manual_seed(1)
    masks = [case.call(function, *case.leaves) for function in KERNELS[name]]
    for mask in masks:
        assert mask.shape == case.leaves[0].shape
        assert mask.dtype == case.leaves[0].dtype
        assert len(mask.unique()) == 2
    fast, twin = masks
    torch.testing.assert_close(fast.max(), twin.max(), rtol=1e-6, atol=0)
    assert abs(float((fast == 0).double().mean() - (twin == 0).double().mean())) < 0.01


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of memory and cache so low that even these small tensors are cut into slices."""
    monkeypatch.setattr(additive, "MAX_UNITS", 30)
    monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", 40)
    monkeypatch.setattr(slices, "_CACHED_ELEMENTS", 40)


def test_every_kernel_is_held_to_its_twin() -> None:
    """A new one needs cases here."""
    assert set(CASES) == set(KERNELS)
    assert all(len(cases) > 1 for cases in CASES.values())


@pytest.mark.parametrize("path", ["this processor", "in slices", *PROCESSORS])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("name", "index"), KINDS)
def test_a_kernel_is_its_plain_twin(
    name: str, index: int, dtype: torch.dtype, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Used once, used by the steps of a loop that shares gradients, and used without gradients."""
    if path == "in slices":
        cut_small(monkeypatch)
    elif path in PROCESSORS:
        use_processor(monkeypatch, path)
    case, kernel = CASES[name][index](dtype), KERNELS[name]
    if not case.needs_gradient:
        check_equal_given_the_mask(name, case)
        return
    for uses in (1, 3):
        with share_gradients() if uses > 1 else nullcontext():
            found = results(case.call, kernel.fast, case.leaves, uses)
        with plain():
            expected = results(case.call, kernel.twin, case.leaves, uses)
        check(found, expected, dtype)
        moved = [one.requires_grad for one in expected]
        assert [one.requires_grad for one in found] == moved
        wanted = gradients(list(compress(expected, moved)), case.leaves)
        check(gradients(list(compress(found, moved)), case.leaves), wanted, dtype)
    with torch.no_grad():
        check(results(case.call, kernel.fast, case.leaves, uses), expected, dtype)


@pytest.mark.parametrize(("name", "index"), [(name, index) for name, index in KINDS if has_derivative(name, index)])
def test_a_kernel_has_the_right_derivative(name: str, index: int) -> None:
    """Against small differences of its own values."""
    case = CASES[name][index](torch.float64)

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(one for one in tensors(case.call(KERNELS[name].fast, *leaves)) if one.requires_grad)

    if name in ONE_BACKWARD_PASS:
        check_in_one_direction(function, case.leaves)
    else:
        is_large = sum(one.numel() for one in case.leaves) > 500
        assert torch.autograd.gradcheck(function, case.leaves, fast_mode=is_large)


def check_in_one_direction(function: Callable[..., tuple[Tensor, ...]], leaves: list[Tensor]) -> None:
    """The derivative along a random direction, for what can be differentiated only once."""
    directions = [sample(*one.shape, seed=30 + index) for index, one in enumerate(leaves)]
    found = sum(
        (gradient * direction).sum()
        for gradient, direction in zip(gradients(function(*leaves), leaves), directions, strict=True)
    )
    step = 1e-6
    ends = []
    for sign in (1, -1):
        moved = [
            (one + sign * step * way).detach().requires_grad_() for one, way in zip(leaves, directions, strict=True)
        ]
        outs = function(*moved)
        ends.append(sum((out * sample(*out.shape, seed=90 + i)).sum().item() for i, out in enumerate(outs)))
    assert float(found) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-6)
