"""Packed copies of a model: the same numbers, and the model itself is left alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.kernels.kernel_inputs import (
    check_close,
    every_processor,
    in_float32,
    sample,
    small_model,
    small_pairs,
    use_processor,
)
from translate.kernels import FastLinear, packed, plain
from translate.kernels.packed import PackedLinear
from translate.models.seq2seq import Seq2Seq


@torch.no_grad()
def log_probs(model: Seq2Seq) -> Tensor:
    """What a model says of all targets: (B · T, V)."""
    pairs = small_pairs()
    decoded, source = model(pairs.src, pairs.src_valid, pairs.src_lengths, pairs.tgt_in)
    weights = None if decoded.weights is None else decoded.weights.flatten(0, 1)
    rows = torch.arange(len(pairs.src)).repeat_interleave(pairs.tgt_in.size(1))
    return model.decoder.output.log_probs(decoded.features.flatten(0, 1), weights, source, rows)


@every_processor
def test_a_packed_map_keeps_its_numbers(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, processor)
    torch.manual_seed(1)
    linear, inputs = FastLinear(16, 8), in_float32(2, 3, 16, seed=2)
    expected, without = linear(inputs).detach(), linear.without_bias(inputs).detach()
    made = PackedLinear(linear)
    assert (made.packed is not None) == (processor.startswith("Zen") and torch.backends.mkldnn.is_available())
    for one in (made, copy.deepcopy(made)):
        with torch.no_grad():
            torch.testing.assert_close(one(inputs), expected)
            torch.testing.assert_close(one.without_bias(inputs), without)
        given = inputs.clone().requires_grad_()
        (found,) = torch.autograd.grad(one(given).sum(), given)  # a packed model may still be asked for a gradient
        torch.testing.assert_close(found, linear.weight.detach().sum(dim=0).expand_as(inputs))
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            assert one(inputs).dtype == torch.bfloat16


def test_a_packed_map_does_not_change_with_what_it_was_made_of() -> None:
    linear, inputs = FastLinear(16, 8), in_float32(3, 16, seed=2)
    made, expected = PackedLinear(copy.deepcopy(linear)), linear(inputs).detach()
    with torch.no_grad():
        linear.weight.zero_()
        torch.testing.assert_close(made(inputs), expected)


@every_processor
@pytest.mark.parametrize("kind", ["bahdanau", "conditional", "luong", "plain", "tutorial"])
def test_a_packed_model_says_what_it_said(kind: str, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(kind).float()
    expected = log_probs(model)
    use_processor(monkeypatch, processor)
    made = packed(model)
    torch.testing.assert_close(log_probs(made), expected, rtol=1e-4, atol=1e-5)
    layers = [module for module in made.modules() if getattr(module, "packed", None) is not None]
    assert len(layers) > 6 or not processor.startswith("Zen") or not torch.backends.mkldnn.is_available()
    assert not any(type(module) is FastLinear for module in made.modules())
    torch.testing.assert_close(log_probs(model), expected, rtol=1e-4, atol=1e-5)


def test_the_model_itself_is_left_alone() -> None:
    """It goes on training, in its own tensors; its copy has the same parameters' names."""
    model = small_model("bahdanau")
    before = {name: (parameter.data_ptr(), parameter.clone()) for name, parameter in model.named_parameters()}
    made = packed(model)
    assert made is not model
    assert set(made.state_dict()) == set(model.state_dict())
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad
        assert parameter.data_ptr() == before[name][0]
        assert torch.equal(parameter, before[name][1])
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    check_close(log_probs(made), log_probs(model))


def test_the_twin_of_a_packed_model_is_the_model() -> None:
    model = nn.Sequential(FastLinear(4, 3))
    with plain():
        assert packed(model) is model


def test_weights_lie_by_column_where_they_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, "Xeon")
    linear = FastLinear(5, 3).double()
    made = PackedLinear(linear)
    assert made.weight.t().is_contiguous()
    assert torch.equal(made.weight, linear.weight)
    inputs = sample(2, 5, seed=1)
    with torch.no_grad():
        check_close(made(inputs), linear(inputs))
