"""Products by the fastest library there is: the same numbers on every processor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.kernels.kernel_inputs import check_close, every_processor, in_float32, sample, use_processor
from translate.kernels import matmul
from translate.kernels.matmul import (
    PackedWeight,
    WeightGradientSum,
    linear,
    pad_rows_if_faster,
    round_up_rows,
    suits_onednn,
    weight_gradient,
)


@every_processor
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 70, 600])
def test_every_layout_gives_the_product(
    processor: str, transposed: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, processor)
    weight = in_float32(1024, 24, seed=1).t() if transposed else in_float32(24, 1024, seed=1)
    bias, plus = in_float32(24, seed=2), in_float32(rows, 24, seed=3)
    inputs = in_float32(rows, 1030, seed=4)[:, :1024]  # as a slice of something wider
    packed, exact = PackedWeight(weight), inputs.double() @ weight.double().t()
    for found, added in ((packed(inputs), 0), (packed(inputs, bias), bias), (packed(inputs, plus=plus), plus)):
        torch.testing.assert_close(found.double(), exact + added, rtol=0, atol=1e-3)


@pytest.mark.parametrize("processor", ["Zen 4", "Zen 5"])
def test_a_row_does_not_depend_on_its_neighbours(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, processor)
    weight, inputs = in_float32(256, 512, seed=1), in_float32(700 if processor == "Zen 5" else 130, 512, seed=2)
    if not suits_onednn(weight):
        pytest.skip("this torch has no oneDNN")
    packed = PackedWeight(weight)
    whole = packed(inputs)
    for count in (1, 2, 5, 64, 65, 600):
        assert torch.equal(packed(inputs[:count]), whole[:count])
        if processor == "Zen 5" and count > 48:
            assert torch.equal(matmul.linear_no_grad(inputs[:count], weight), whole[:count])


def test_numbers_of_rows_are_few_and_little_is_added() -> None:
    sizes = [round_up_rows(rows) for rows in range(20_000)]
    assert len(set(sizes[:513])) < 60
    assert all(len({size for size in sizes if most // 2 < size <= most}) <= 16 for most in (1024, 2048, 4096, 16384))
    assert all(rows <= size <= max(rows + 3, 1.17 * rows) for rows, size in enumerate(sizes))
    assert all(round_up_rows(size) == size for size in sizes)


@every_processor
@pytest.mark.parametrize("rows", [0, 1, 130, 600])
@pytest.mark.parametrize("biased", [True, False])
def test_a_large_product_has_torchs_value_and_gradients(
    processor: str, rows: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, processor)
    weight = in_float32(24, 40, seed=1).requires_grad_()
    bias = in_float32(24, seed=2).requires_grad_() if biased else None
    inputs = in_float32(2, rows, 43, seed=3)[..., :40].requires_grad_()  # as a slice of something wider
    given = [one for one in (inputs, weight, bias) if one is not None]
    found, expected = linear(inputs, weight, bias), F.linear(inputs, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    wanted = in_float32(2, rows, 24, seed=4)
    for one, other in zip(
        *(torch.autograd.grad((out * wanted).sum(), given) for out in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("processor", ["Zen 5", "Zen 4"])
def test_only_zen_5_gives_onednn_what_is_used_once(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, processor)
    called: list[int] = []
    onednn = matmul._onednn
    monkeypatch.setattr(matmul, "_onednn", lambda one, *more: called.append(len(one)) or onednn(one, *more))
    matmul.linear_no_grad(in_float32(70, 8, seed=1), in_float32(6, 8, seed=2))
    weight_gradient(in_float32(70, 6, seed=1), in_float32(70, 8, seed=2))
    has_onednn = torch.backends.mkldnn.is_available()
    assert called == ([72, 6] if processor == "Zen 5" and has_onednn else [])


@every_processor
@pytest.mark.parametrize("chunks", [(), (64,), (64, 64, 5), (64, 7)])
def test_chunks_add_up_to_the_gradient_of_a_weight(
    processor: str, chunks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, processor)
    monkeypatch.setattr(matmul, "_MIN_ROWS", 6)  # so that a last chunk of 5 rows goes another way than the others
    weight, found = in_float32(30, 4, seed=1), WeightGradientSum(in_float32(30, 4, seed=1))
    expected = torch.zeros_like(weight)
    for index, rows in enumerate(chunks):
        inputs, grads = in_float32(rows, 4, seed=index), in_float32(rows, 30, seed=10 + index)
        expected += grads.t() @ inputs
        more = len(pad_rows_if_faster(inputs, weight)) - rows
        found.add(F.pad(grads, (0, 0, 0, more)), pad_rows_if_faster(inputs, weight))
    total = found.total()
    assert total.is_contiguous()
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


@every_processor
def test_other_precisions_stay_with_torch(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, processor)
    weight, inputs = sample(6, 4, seed=1), sample(3, 4, seed=2)
    assert not suits_onednn(weight)
    check_close(PackedWeight(weight)(inputs), inputs @ weight.t())
    with torch.autocast("cpu", torch.bfloat16):
        assert not suits_onednn(weight.float())


@every_processor
def test_small_matrices_and_few_rows_stay_with_torch(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    least, rows = matmul._MIN_ELEMENTS, matmul._MIN_ROWS
    use_processor(monkeypatch, processor)
    monkeypatch.setattr(matmul, "_MIN_ELEMENTS", least)
    monkeypatch.setattr(matmul, "_MIN_ROWS", rows)
    has_onednn, large = torch.backends.mkldnn.is_available(), in_float32(128, 128, seed=1)
    assert suits_onednn(large) == (has_onednn and processor.startswith("Zen"))
    assert not suits_onednn(in_float32(127, 128, seed=1))
    assert matmul._pays_when_used_once(rows, large) == (has_onednn and processor == "Zen 5")
    assert not matmul._pays_when_used_once(rows - 1, large)
