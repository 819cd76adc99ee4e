"""Recurrent units whose derivative is written out: precisions, extra inputs, and what is kept for the backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.kernels.kernel_inputs import check_all_close, check_close, gradients, in_float32, sample
from translate.kernels import FastLinear, gru, lstm, plain
from translate.kernels.gru import _GruUnrolled, tanh_
from translate.kernels.matmul import PackedWeight
from translate.kernels.packed import PackedLinear

ROWS, STEPS, INPUT, WIDTH = 3, 5, 2, 4


def test_the_gru_has_the_derivative_that_is_written_out() -> None:
    inputs, start = sample(STEPS, ROWS, INPUT, seed=9).requires_grad_(), sample(ROWS, WIDTH, seed=10).requires_grad_()
    shapes = ((3 * WIDTH, INPUT), (3 * WIDTH, WIDTH), (3 * WIDTH,), (3 * WIDTH,))
    weights = [sample(*shape, seed=11 + index).requires_grad_() for index, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(lambda *given: _GruUnrolled.apply(*given, None, None), (inputs, start, *weights))


def torchs(kind: type[nn.RNNBase], input: FastLinear, recurrent: FastLinear) -> nn.RNNBase:
    """torch's own with the same weights."""
    made = kind(INPUT, WIDTH, batch_first=True).to(input.weight.dtype)
    with torch.no_grad():
        for theirs, ours in zip(
            made.parameters(), (input.weight, recurrent.weight, input.bias, recurrent.bias), strict=True
        ):
            theirs.copy_(ours)
    return made


@pytest.mark.parametrize("packed", [False, True])
def test_a_gru_is_torchs_own(packed: bool) -> None:
    torch.manual_seed(1)
    given, recurrent = FastLinear(INPUT, 3 * WIDTH).double(), FastLinear(WIDTH, 3 * WIDTH).double()
    inputs, start = sample(ROWS, STEPS, INPUT, seed=1), sample(ROWS, WIDTH, seed=2)
    expected = torchs(nn.GRU, given, recurrent)(inputs, start.unsqueeze(0))[0]
    if packed:
        given, recurrent = PackedLinear(given), PackedLinear(recurrent)
        given.packed, recurrent.packed = PackedWeight(given.weight), PackedWeight(recurrent.weight)
    check_close(gru(inputs, start, given, recurrent, None), expected)


def test_an_lstm_is_torchs_own() -> None:
    torch.manual_seed(1)
    given, recurrent = FastLinear(INPUT, 4 * WIDTH).double(), FastLinear(WIDTH, 4 * WIDTH).double()
    inputs = sample(ROWS, STEPS, INPUT, seed=1)
    start, cell = sample(ROWS, WIDTH, seed=2), sample(ROWS, WIDTH, seed=3)
    expected = torchs(nn.LSTM, given, recurrent)(inputs, (start.unsqueeze(0), cell.unsqueeze(0)))[0]
    check_close(lstm(inputs, start, cell, given, recurrent, None), expected)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gates", [3, 4])
def test_half_precision_has_its_kernels(gates: int, half: torch.dtype) -> None:
    """Under autocast, near what single precision gives, gradients too; oneDNN has no LSTM in float16."""
    torch.manual_seed(1)
    given, recurrent = FastLinear(INPUT, gates * WIDTH), FastLinear(WIDTH, gates * WIDTH)
    inputs, starts = in_float32(ROWS, STEPS, INPUT, seed=1).requires_grad_(), [in_float32(ROWS, WIDTH, seed=2)]
    starts += [in_float32(ROWS, WIDTH, seed=3)] * (gates - 3)
    unroll = gru if gates == 3 else lstm
    wanted = [inputs, *given.parameters(), *recurrent.parameters()]
    found: list[list[Tensor]] = []
    for enabled in (False, True):
        with torch.autocast("cpu", half, enabled=enabled):
            states = unroll(inputs, *starts, given, recurrent, None)  # type: ignore[operator]
        found.append([states.float(), *gradients([states.float()], wanted)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.1)
    assert not torch.equal(found[0][0], found[1][0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tanh_in_place_is_tanh(dtype: torch.dtype) -> None:
    values = torch.linspace(-20, 20, 4001, dtype=dtype)
    expected = values.tanh()
    found = tanh_(values)
    assert found is values
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-7 if dtype == torch.float32 else 0)


def test_an_unrolled_gru_without_a_gradient_of_its_inputs() -> None:
    """The first layer of an encoder over frozen embeddings: only the weights' are formed, and they are the same."""
    torch.manual_seed(1)
    given, recurrent = FastLinear(INPUT, 3 * WIDTH).double(), FastLinear(WIDTH, 3 * WIDTH).double()
    inputs, start = sample(ROWS, STEPS, INPUT, seed=1), sample(ROWS, WIDTH, seed=2)
    wanted = [*given.parameters(), *recurrent.parameters()]
    found = gradients([gru(inputs, start, given, recurrent, None)], wanted)
    with plain():
        expected = gradients([gru(inputs, start, given, recurrent, None)], wanted)
    check_all_close(found, expected)
