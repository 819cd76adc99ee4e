"""Products as a processor forms them fastest: the same numbers on every processor."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from small_models import check_close, make_inputs, make_model, output, run, sample
from torch import Tensor

from translate.decoding.packing import pack
from translate.models import layout
from translate.models.layout import Laid, SumOverRows, filled_up, linear
from translate.models.loops import Product, one_gradient

PROCESSORS = {"Zen 4": ("AMD EPYC", 25), "Zen 5": ("AMD EPYC", 26), "Xeon": ("Intel(R) Xeon(R)", 6), "other": ("", 0)}
every_processor = pytest.mark.parametrize("name", PROCESSORS)


def use_processor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    called, family = PROCESSORS[name]
    monkeypatch.setattr(layout, "cpu_name", lambda: called)
    monkeypatch.setattr(layout, "cpu_family", lambda: family)
    monkeypatch.setattr(layout, "_LEAST", 1)
    monkeypatch.setattr(layout, "_LEAST_ROWS", 1)


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


@pytest.mark.parametrize("name", ["Zen 4", "Zen 5"])
def test_a_row_does_not_depend_on_its_neighbours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, name)
    weight, inputs = in_float32(256, 512, seed=1), in_float32(700 if name == "Zen 5" else 130, 512, seed=2)
    laid = Laid.fixed(weight)
    if laid is None:
        pytest.skip("this torch has no oneDNN")
    whole = laid(inputs)
    for count in (1, 2, 5, 64, 65, 600):
        assert torch.equal(laid(inputs[:count]), whole[:count])
        if name == "Zen 5" and count > 48:
            assert torch.equal(layout.times(inputs[:count], weight), whole[:count])


def test_numbers_of_rows_are_few_and_little_is_added() -> None:
    sizes = [layout.rounded(rows) for rows in range(20_000)]
    assert len(set(sizes[:513])) < 60
    assert all(len({size for size in sizes if most // 2 < size <= most}) <= 16 for most in (1024, 2048, 4096, 16384))
    assert all(rows <= size <= max(rows + 3, 1.17 * rows) for rows, size in enumerate(sizes))
    assert all(layout.rounded(size) == size for size in sizes)


@every_processor
@pytest.mark.parametrize("rows", [0, 1, 130, 600])
@pytest.mark.parametrize("biased", [True, False])
def test_a_large_product_has_torchs_value_and_gradients(
    name: str, rows: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, name)
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


@pytest.mark.parametrize("name", ["Zen 5", "Zen 4"])
def test_only_zen_5_gives_onednn_what_is_used_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, name)
    called: list[int] = []
    by_onednn = layout._by_onednn
    monkeypatch.setattr(layout, "_by_onednn", lambda one, *more: called.append(len(one)) or by_onednn(one, *more))
    layout.times(in_float32(70, 8, seed=1), in_float32(6, 8, seed=2))
    layout.summed_over_rows(in_float32(70, 6, seed=1), in_float32(70, 8, seed=2))
    has_onednn = torch.backends.mkldnn.is_available()
    assert called == ([72, 6] if name == "Zen 5" and has_onednn else [])


@every_processor
@pytest.mark.parametrize("chunks", [(), (64,), (64, 64, 5), (64, 7)])
def test_chunks_add_up_to_the_gradient_of_a_weight(
    name: str, chunks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, name)
    monkeypatch.setattr(layout, "_LEAST_ROWS", 6)  # so that a last chunk of 5 rows goes another way than the others
    weight, found = in_float32(30, 4, seed=1), SumOverRows(in_float32(30, 4, seed=1))
    expected = torch.zeros_like(weight)
    for index, rows in enumerate(chunks):
        inputs, grads = in_float32(rows, 4, seed=index), in_float32(rows, 30, seed=10 + index)
        expected += grads.t() @ inputs
        more = len(filled_up(inputs, weight)) - rows
        found.add(F.pad(grads, (0, 0, 0, more)), filled_up(inputs, weight))
    total = found.total()
    assert total.is_contiguous()
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


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
    use_processor(monkeypatch, "Zen 4")
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
        use_processor(monkeypatch, "Zen 4")
        pack(model)
        found, source = run(model, inputs)
        torch.testing.assert_close(output(model, found, source), probabilities, rtol=1e-4, atol=1e-5)
    settled = [module for module in model.modules() if getattr(module, "laid", None) is not None]
    assert len(settled) > 8 or not torch.backends.mkldnn.is_available()
