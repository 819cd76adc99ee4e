"""Products as a processor forms them fastest: the same numbers on every processor."""

from __future__ import annotations

import copy

import pytest
import torch
from small_models import check_close, make_inputs, make_model, output, run, sample
from torch import Tensor

from translate.decoding.packing import pack
from translate.models import layout
from translate.models.layout import Laid
from translate.models.loops import Product, one_gradient

PROCESSORS = ("AMD EPYC", "Intel(R) Xeon(R)", "")
every_processor = pytest.mark.parametrize("name", PROCESSORS)


def use_processor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(layout, "cpu_name", lambda: name)
    monkeypatch.setattr(layout, "_LEAST", 1)


def in_float32(*shape: int, seed: int) -> Tensor:
    return sample(*shape, seed=seed).float()


@every_processor
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 70, 600])
def test_every_layout_gives_the_product(
    name: str, transposed: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, name)
    weight = in_float32(1024, 24, seed=1).t() if transposed else in_float32(24, 1024, seed=1)
    bias, plus = in_float32(24, seed=2), in_float32(rows, 24, seed=3)
    inputs = in_float32(rows, 1030, seed=4)[:, :1024]  # as a slice of something wider
    laid, exact = Laid(weight), inputs.double() @ weight.double().t()
    for found, added in ((laid(inputs), 0), (laid(inputs, bias), bias), (laid(inputs, plus=plus), plus)):
        torch.testing.assert_close(found.double(), exact + added, rtol=0, atol=1e-3)


def test_a_packed_row_does_not_depend_on_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, "AMD EPYC")
    laid, inputs = Laid.fixed(in_float32(256, 512, seed=1)), in_float32(130, 512, seed=2)
    if laid is None:
        pytest.skip("this torch has no oneDNN")
    whole = laid(inputs)
    for count in (1, 2, 5, 64, 65):
        assert torch.equal(laid(inputs[:count]), whole[:count])


def test_numbers_of_rows_are_few_and_little_is_added() -> None:
    sizes = [layout.rounded(rows) for rows in range(513)]
    assert len(set(sizes)) < 60
    assert all(rows <= size <= max(rows + 3, 1.17 * rows) for rows, size in enumerate(sizes))
    assert all(layout.rounded(size) == size for size in sizes)


@every_processor
def test_other_precisions_stay_with_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, name)
    weight, inputs = sample(6, 4, seed=1), sample(3, 4, seed=2)
    assert Laid.fixed(weight) is None
    check_close(Laid(weight)(inputs), inputs @ weight.t())
    with torch.autocast("cpu", torch.bfloat16):
        assert Laid.fixed(weight.float()) is None


@every_processor
def test_a_loop_in_float32_has_autograds_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, name)
    torch.manual_seed(1)
    product, start = Product(40, 40), in_float32(7, 40, seed=2)

    def gradients(loop: bool) -> list[Tensor]:
        given = start.clone().requires_grad_()
        state = given
        with one_gradient() if loop else torch.enable_grad():
            for _ in range(4):
                state = torch.tanh(product(state) + product.times(given))
        return list(torch.autograd.grad((state**2).sum(), [given, *product.parameters()]))

    for one, other in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_settled_product_keeps_its_numbers_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, "AMD EPYC")
    torch.manual_seed(1)
    product, inputs = Product(16, 8), in_float32(2, 3, 16, seed=2)
    expected = product(inputs).detach()
    product.settle()
    copied = copy.deepcopy(product)
    for one in (product, copied):
        with torch.no_grad():
            torch.testing.assert_close(one(inputs), expected)
        one(inputs).sum().backward()  # type: ignore[no-untyped-call]
        assert one.weight.grad is not None
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            assert one(inputs).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["bahdanau", "conditional", "luong"])
def test_a_packed_model_says_what_it_said(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = make_model(decoder__kind=kind).float().eval(), make_inputs()
    with torch.no_grad():
        expected, source = run(model, inputs)
        probabilities = output(model, expected, source)
        use_processor(monkeypatch, "AMD EPYC")
        pack(model)
        found, source = run(model, inputs)
        torch.testing.assert_close(output(model, found, source), probabilities, rtol=1e-4, atol=1e-5)
    settled = [module for module in model.modules() if getattr(module, "laid", None) is not None]
    assert len(settled) > 8 or not torch.backends.mkldnn.is_available()
