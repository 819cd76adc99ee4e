"""Products in 8 bits: close to those in 32, the same for a row whatever its neighbours, in a copy of the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.kernels.kernel_inputs import small_model
from translate.errors import ConfigError
from translate.kernels import FastLinear, int8, packed, plain
from translate.kernels.int8 import MIN_SIDE, Int8Linear

has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
needs_vnni = pytest.mark.skipif(not has_vnni(), reason="this processor has no products of 8 bits")


@needs_vnni
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 64), (5, 256), (2, 3, 100)])
def test_a_product_is_within_two_hundredths(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    linear = FastLinear(shape[-1], 300, bias=bias)
    inputs = torch.randn(shape) * torch.logspace(-3, 3, shape[-2])[:, None]
    exact = linear(inputs).detach()
    found = Int8Linear(linear)(inputs)
    assert found.shape == exact.shape
    errors = (found - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert float(errors.max()) < 0.02  # of every row, however small its numbers are beside its neighbours'


@needs_vnni
@pytest.mark.parametrize("rows", [0, 1, 7, 70])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_that_of_its_twin(rows: int, bias: bool) -> None:
    """To the last bit but for what lies between two whole numbers."""
    torch.manual_seed(3)
    linear, inputs = FastLinear(192, 128, bias=bias), torch.randn(rows, 192)
    with plain():
        twin = Int8Linear(linear)
        expected = twin(inputs)
    fast = Int8Linear(linear)
    assert not hasattr(fast, "rounded")
    torch.testing.assert_close(fast(inputs), expected, rtol=0, atol=0.01)
    if rows:
        assert float((fast(inputs) - expected).abs().median()) < 1e-6


@needs_vnni
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(2)
    linear, inputs = FastLinear(192, 128), torch.randn(70, 192)
    small = Int8Linear(linear)
    together = small(inputs)
    assert torch.equal(together, torch.cat([small(row) for row in inputs.split(1)]))
    assert torch.equal(together[:7], small(torch.cat([inputs[:7], 1e3 * inputs[7:]]))[:7])


@needs_vnni
def test_a_row_of_zeros_gives_the_bias() -> None:
    linear = FastLinear(64, 64)
    assert torch.equal(Int8Linear(linear)(torch.zeros(3, 64)), linear.bias.detach().expand(3, 64))


@needs_vnni
def test_without_bias_is_the_product_alone() -> None:
    linear = FastLinear(64, 64)
    small, inputs = Int8Linear(linear), torch.randn(3, 64)
    torch.testing.assert_close(small.without_bias(inputs) + linear.bias.detach(), small(inputs))


@needs_vnni
def test_a_copy_of_the_part_that_is_named_is_in_8_bits() -> None:
    """Its large matrices; the model itself and its other parts are left alone, whether it is packed or not."""
    model = small_model("bahdanau", width=MIN_SIDE).float()
    for one in (model, packed(model)):
        before = {name: parameter.clone() for name, parameter in one.named_parameters()}
        small = int8(one, "decoder")
        assert not any(min(m.weight.shape) >= MIN_SIDE for m in small.decoder.modules() if isinstance(m, nn.Linear))
        assert any(isinstance(m, Int8Linear) for m in small.decoder.modules())
        assert not any(isinstance(m, Int8Linear) for m in (*small.encoder.modules(), *one.modules()))
        assert all(torch.equal(parameter, before[name]) for name, parameter in one.named_parameters())


def test_a_machine_without_such_products_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False, raising=False)
    with pytest.raises(ConfigError, match=r"search\.int8 needs a CPU.*Leave search\.int8 out"):
        int8(small_model("bahdanau"), "decoder")
