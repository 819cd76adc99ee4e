"""Search with products in 8 bits: every decoder, close to search in 32, and the same for a row on its own."""

from __future__ import annotations

import pytest
import torch

from tests.decoding.decoding_models import encode, make_sources
from translate.config import AttentionConfig, DecoderConfig, EmbeddingConfig, EncoderConfig, ModelConfig, SearchConfig
from translate.decoding.beam import beam_search
from translate.decoding.greedy import greedy
from translate.decoding.packing import int8_for_search
from translate.kernels.int8 import Int8Linear
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
        model.decoder.output.vocabulary.weight.mul_(6.0)
    return model


@needs_vnni
@pytest.mark.parametrize("kind", list(DECODERS))
def test_every_decoder_searches_in_8_bits(kind: str) -> None:
    model = wide_model(kind)
    small = int8_for_search(model)
    assert isinstance(small.decoder.output.vocabulary, Int8Linear)
    sources = make_sources([3, 7, 5, 9, 4, 6], seed=3)
    search = SearchConfig(beam=3, length_ratio=1.0, length_extra=4)
    source = encode(model, sources)
    exact, found = beam_search(model, source, search), beam_search(small, encode(small, sources), search)
    for one, other in zip(exact, found, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=0.15)
    alone = [greedy(small, encode(small, [one]), search)[0].tokens for one in sources]
    assert alone == [one.tokens for one in greedy(small, encode(small, sources), search)]
