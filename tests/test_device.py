"""Devices and number formats, as far as a machine without a GPU can show."""

from __future__ import annotations

import pytest
import torch

from translate.config import ModelConfig, TrainConfig
from translate.device import Precision, resolve_device, resolve_precision
from translate.errors import ConfigError
from translate.models.seq2seq import Seq2Seq
from translate.training.loss import sequence_loss
from translate.training.optim import build_optimizer

CPU = torch.device("cpu")
every_format = pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])


@pytest.fixture
def _only_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has, pretend it has no accelerator."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("_only_a_cpu")
@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_absent_device_is_the_users_mistake(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_device(name)
    assert str(caught.value) == (f"train.device = '{name}': this machine has none. It has: cpu. 'auto' takes the best.")


@pytest.mark.usefixtures("_only_a_cpu")
@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_the_cpu_is_always_there(name: str) -> None:
    assert resolve_device(name) == CPU


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps")])
def test_auto_takes_the_best_there_is(cuda: bool, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert resolve_device("auto").type == expected


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_auto_is_exact_without_cuda(device: str) -> None:
    assert resolve_precision("auto", torch.device(device)) == "fp32"


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "fp16")])
def test_auto_on_cuda_is_what_the_card_can_do(supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert resolve_precision("auto", torch.device("cuda")) == expected


@every_format
def test_a_named_format_is_taken_as_it_stands(name: str) -> None:
    assert resolve_precision(name, CPU) == name
    assert Precision(name, CPU).name == name


@every_format
def test_only_fp16_needs_loss_scaling(name: str) -> None:
    assert Precision(name, CPU).scaler.is_enabled() == (name == "fp16")


@every_format
def test_products_are_in_the_format_asked_for(name: str) -> None:
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    with Precision(name, CPU).autocast():
        assert (torch.ones(2, 3) @ torch.ones(3, 4)).dtype == dtypes[name]
    assert (torch.ones(2, 3) @ torch.ones(3, 4)).dtype == torch.float32


@every_format
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "plain"])
def test_an_update_stays_finite_and_near_the_exact_one(name: str, decoder: str) -> None:
    """As the trainer does it: autocast, scaled loss, unscaled gradients, step."""
    sizes = {"embedding": {"width": 6}, "encoder": {"width": 4}, "attention": {"width": 7}}
    config = ModelConfig.model_validate({**sizes, "decoder": {"width": 10, "kind": decoder, "layers": 2}})
    generator = torch.Generator().manual_seed(1)
    src, tgt = torch.randint(4, 13, (3, 5), generator=generator), torch.randint(4, 11, (3, 8), generator=generator)
    lengths = torch.tensor([5, 1, 3])

    def gradients(precision: Precision) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Seq2Seq(config, 13, 11, 20).eval()
        optimizer = build_optimizer(model, TrainConfig(steps=1))
        before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
        with precision.autocast():
            decoded, source = model(src, torch.arange(5) < lengths.unsqueeze(1), lengths, tgt)
            loss, *_ = sequence_loss(model, decoded, source, tgt, torch.ones_like(tgt, dtype=torch.bool), 0.1)
        assert loss.dtype == torch.float32
        precision.scaler.scale(loss / tgt.numel()).backward()
        precision.scaler.unscale_(optimizer)
        found = {}
        for key, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.dtype == torch.float32
            assert parameter.grad.isfinite().all(), key
            found[key] = parameter.grad.clone()
        precision.scaler.step(optimizer)
        precision.scaler.update()
        assert all((parameter != before[key]).any() for key, parameter in model.named_parameters())
        return found

    exact, found = gradients(Precision("fp32", CPU)), gradients(Precision(name, CPU))
    total = torch.cat([gradient.flatten() for gradient in exact.values()]).norm()
    difference = torch.cat([(found[key] - exact[key]).flatten() for key in exact]).norm()
    # bf16 keeps 8 bits of each number, fp16 11.
    assert difference <= {"fp32": 0.0, "bf16": 0.05, "fp16": 0.01}[name] * total
