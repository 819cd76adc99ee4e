"""Products in 8 bits: close to those in 32, the same for a row whatever its neighbours, and for search alone."""

from __future__ import annotations

import pytest
import torch
from decoding_models import encode, make_sources
from torch import nn

from translate.config import AttentionConfig, DecoderConfig, EmbeddingConfig, EncoderConfig, ModelConfig, SearchConfig
from translate.decoding.beam import beam_search
from translate.decoding.greedy import greedy
from translate.decoding.int8 import Int8Linear, Int8OutputLayer, with_int8
from translate.errors import ConfigError
from translate.models.decoders import DECODERS
from translate.models.seq2seq import Seq2Seq

has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)
needs_vnni = pytest.mark.skipif(not has_vnni(), reason="this processor has no products of 8 bits")


def wide_model(kind: str, seed: int = 0) -> Seq2Seq:
    """Wide enough that its products are worth packing, and sure of what it says."""
    config = ModelConfig(
        embedding=EmbeddingConfig(width=64),
        encoder=EncoderConfig(width=64),
        attention=AttentionConfig(score="location" if kind == "tutorial" else "additive", width=64),
        decoder=DecoderConfig(kind=kind, width=64),
    )
    torch.manual_seed(seed)
    model = Seq2Seq(config, 13, 90, 30).eval()
    with torch.no_grad():
        model.decoder.out.weight.mul_(6.0)
    return model


@needs_vnni
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 64), (5, 256), (2, 3, 100)])
def test_a_product_is_within_two_hundredths(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    layer, inputs = nn.Linear(shape[-1], 300, bias=bias), torch.randn(shape) * torch.logspace(-3, 3, shape[-2])[:, None]
    exact = layer(inputs).detach()
    found = Int8Linear(layer.weight, layer.bias)(inputs)
    assert found.shape == exact.shape
    errors = (found - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert float(errors.max()) < 0.02  # of every row, however small its numbers are beside its neighbours'


@needs_vnni
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(2)
    layer, inputs = nn.Linear(192, 128), torch.randn(70, 192)
    small = Int8Linear(layer.weight, layer.bias)
    together = small(inputs)
    assert torch.equal(together, torch.cat([small(row) for row in inputs.split(1)]))
    assert torch.equal(together[:7], small(torch.cat([inputs[:7], 1e3 * inputs[7:]]))[:7])


@needs_vnni
def test_a_row_of_zeros_gives_the_bias() -> None:
    layer = nn.Linear(64, 64)
    assert torch.equal(Int8Linear(layer.weight, layer.bias)(torch.zeros(3, 64)), layer.bias.detach().expand(3, 64))


@needs_vnni
@pytest.mark.parametrize("kind", list(DECODERS))
def test_every_decoder_searches_in_8_bits(kind: str) -> None:
    model = wide_model(kind)
    small = with_int8(model)
    assert isinstance(small.decoder.out, Int8OutputLayer)
    assert not any(min(m.weight.shape) >= 64 for m in small.decoder.modules() if isinstance(m, nn.Linear))
    assert any(isinstance(m, nn.Linear) for m in model.decoder.modules()), "the model itself is left alone"
    sources = make_sources([3, 7, 5, 9, 4, 6], seed=3)
    search = SearchConfig(beam=3, length_ratio=1.0, length_extra=4)
    source = encode(model, sources)
    exact, found = beam_search(model, source, search), beam_search(small, encode(small, sources), search)
    for one, other in zip(exact, found, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=0.15)
    alone = [greedy(small, encode(small, [one]), search)[0].tokens for one in sources]
    assert alone == [one.tokens for one in greedy(small, encode(small, sources), search)]


def test_a_machine_without_such_products_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False, raising=False)
    with pytest.raises(ConfigError, match=r"search\.int8 needs a CPU.*Leave search\.int8 out"):
        with_int8(wide_model("bahdanau"))
