"""The copy of a model that search owns has a table of what its decoder makes of each token."""

from __future__ import annotations

import pytest
import torch

from tests.decoding.decoding_models import DECODERS, make_model
from translate.decoding import packing
from translate.decoding.packing import packed_for_search
from translate.kernels.dispatch import uses_twin

pytestmark = pytest.mark.skipif(uses_twin("linear"), reason="without kernels search has no copy")


@pytest.mark.parametrize("name", DECODERS)
def test_the_table_is_of_every_token(name: str) -> None:
    model = make_model(name).float().train()
    packed = packed_for_search(model)
    assert not model.training
    assert packed is not model
    assert getattr(model.decoder, "token_table", None) is None, "the model itself stays as it was"
    table = model.decoder.embed.table.weight
    torch.testing.assert_close(packed.decoder.token_table, model.decoder.from_token(table))


def test_a_table_that_is_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("bahdanau").float()
    size = packed_for_search(model).decoder.token_table.numel()
    for most, made in ((size, True), (size - 1, False)):
        monkeypatch.setattr(packing, "MAX_TABLE", most)
        assert (packed_for_search(model).decoder.token_table is not None) == made
