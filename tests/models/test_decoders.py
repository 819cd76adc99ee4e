"""Decoders against a plain reading of their formulas, their fast paths, and what becomes of their features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.covering import in_tree
from tests.models.decoder_readings import DecoderReading
from tests.models.small_models import (
    check_close,
    encode,
    make_inputs,
    make_model,
    run,
    sample,
    without_dropout,
)
from translate.models.decoders import DECODERS, RecurrentDecoder
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, RecurrentState

RECURRENT = [kind for kind, decoder in DECODERS.items() if issubclass(decoder, RecurrentDecoder)]
FED = [(kind, fed) for kind in RECURRENT for fed in (True, False) if fed or "input_feeding" in DECODERS[kind].supports]
every_decoder = pytest.mark.parametrize(("kind", "feeding"), FED)
every_cell = pytest.mark.parametrize("cell", ["gru", "lstm"])


def make(kind: str, feeding: bool, **settings: Any) -> Seq2Seq:
    score, *_ = DECODERS[kind].scores or ("additive",)
    return make_model(decoder__kind=kind, decoder__input_feeding=feeding, **{"attention__score": score, **settings})


# -- each is its formula -----------------------------------------------------------------------------------------------


def test_every_decoder_has_a_second_reading() -> None:
    assert all(hasattr(DecoderReading, kind) for kind in in_tree("decoder.kind"))


@pytest.mark.parametrize("layers", [1, 3])
@every_cell
@pytest.mark.parametrize(("kind", "feeding"), [(kind, fed) for kind, fed in FED if kind in in_tree("decoder.kind")])
@torch.no_grad()
def test_a_decoder_is_its_formula(kind: str, feeding: bool, cell: str, layers: int) -> None:
    model = make(kind, feeding, decoder__cell=cell, decoder__layers=layers, attention__scope="local_m")
    inputs = make_inputs()
    decoded, source = run(model, inputs)
    for t, (features, weights) in enumerate(DecoderReading(model.decoder, source).write(inputs.tgt_in)):
        check_close(decoded.features[:, t], features)
        check_close(None if decoded.weights is None else decoded.weights[:, t], weights)


# -- fast paths and masks ----------------------------------------------------------------------------------------------


def chain(model: Seq2Seq, tgt_in: Tensor, source: EncodedSource) -> tuple[Tensor, RecurrentState]:
    """The features (B, T, F) of the chain of steps, and the last state."""
    state, every = model.decoder.start(source), []
    for token in tgt_in.unbind(dim=1):
        features, state, _ = model.decoder.step(token, state, source)
        every.append(features)
    return torch.stack(every, dim=1), state


@pytest.mark.parametrize("settings", [{}, {"attention__score": "dot"}, {"decoder__layer_norm": True}], ids=str)
@every_cell
@every_decoder
def test_forward_and_the_chain_of_steps_have_the_same_gradients(
    kind: str, feeding: bool, cell: str, settings: dict[str, Any]
) -> None:
    if DECODERS[kind].scores is not None:
        settings = {key: value for key, value in settings.items() if key != "attention__score"}
    model, inputs = make(kind, feeding, decoder__cell=cell, decoder__layers=2, **settings), make_inputs()
    found, expected = list[Tensor | None](), list[Tensor | None]()
    for path in (found, expected):
        source = encode(model, inputs)
        features = (
            model.decoder(inputs.tgt_in, source).features if path is found else chain(model, inputs.tgt_in, source)[0]
        )
        direction = sample(*features.shape, seed=3)
        path += torch.autograd.grad((features * direction).sum(), list(model.parameters()), allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        check_close(one, other)


@pytest.mark.parametrize(("kind", "feeding"), [("luong", False), ("plain", True)])
@every_cell
def test_a_path_without_a_loop_has_the_right_gradient(kind: str, feeding: bool, cell: str) -> None:
    model, inputs = make(kind, feeding, decoder__cell=cell), make_inputs(steps=2)
    parameters = list(model.parameters())

    def features(*_: Tensor) -> Tensor:
        return run(model, inputs)[0].features

    assert torch.autograd.gradcheck(features, parameters, fast_mode=True)


@pytest.mark.parametrize(
    ("settings", "loops"),
    [
        ({"decoder__input_feeding": False}, False),
        ({"decoder__input_feeding": True}, True),
        ({"decoder__input_feeding": False, "attention__coverage": True}, True),
    ],
    ids=str,
)
def test_luong_loops_only_where_a_step_needs_the_one_before(
    settings: dict[str, Any], loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs, calls = make_model(decoder__kind="luong", **settings), make_inputs(), list[int]()
    assert isinstance(model.decoder, RecurrentDecoder)
    transition = model.decoder.transition

    def spy(*given: Any) -> Any:
        calls.append(1)
        return transition(*given)

    monkeypatch.setattr(model.decoder, "transition", spy)
    run(model, inputs)
    assert len(calls) == (inputs.tgt_in.size(1) if loops else 0)


@every_cell
@every_decoder
@torch.no_grad()
def test_variational_masks_are_one_draw_for_a_whole_sentence(kind: str, feeding: bool, cell: str) -> None:
    """With no other dropout, the draw at the start is all there is of chance: both paths of a sentence agree on it."""
    model = make(kind, feeding, decoder__cell=cell, decoder__layers=2, decoder__variational=True)
    inputs = make_inputs()
    calm, source = run(model, inputs)
    without_dropout(model).train()
    assert isinstance(model.decoder, RecurrentDecoder)
    model.decoder.stack.dropout.share = 0.5
    torch.manual_seed(1)
    shaken = model.decoder(inputs.tgt_in, source)
    torch.manual_seed(1)
    features, state = chain(model, inputs.tgt_in, source)
    check_close(shaken.features, features)
    assert not torch.allclose(shaken.features, calm.features)
    torch.manual_seed(1)
    masks = model.decoder.start(source).masks
    assert len(masks) == 3
    for kept, first in zip(state.masks, masks, strict=True):
        assert torch.equal(kept, first)
    assert model.eval().decoder.start(source).masks == ()


@every_decoder
@torch.no_grad()
def test_dropout_is_drawn_anew_without_variational(kind: str, feeding: bool) -> None:
    model, inputs = make(kind, feeding, decoder__layers=2), make_inputs()
    assert model.train().decoder.start(encode(model, inputs)).masks == ()


# -- the state ---------------------------------------------------------------------------------------------------------


def test_selection_reaches_every_tensor() -> None:
    def column(begin: float) -> Tensor:
        return torch.arange(begin, begin + 3).view(3, 1)

    state = RecurrentState(
        hidden=((column(0.0), column(3.0)), (column(18.0), column(21.0))), position=torch.arange(3), fed=column(6.0),
        coverage=column(9.0), masks=(column(12.0),), loss_terms={"choice": column(15.0)},
    )  # fmt: skip
    picked = state.select(torch.tensor([1, 1, 0, 2]))
    assert picked.hidden[0][1].flatten().tolist() == [4, 4, 3, 5]
    assert picked.hidden[1][0].flatten().tolist() == picked.top.flatten().tolist() == [19, 19, 18, 20]
    assert picked.position.tolist() == [1, 1, 0, 2]
    assert picked.fed is not None
    assert picked.fed.flatten().tolist() == [7, 7, 6, 8]
    assert picked.coverage is not None
    assert picked.coverage.flatten().tolist() == [10, 10, 9, 11]
    assert picked.masks[0].flatten().tolist() == [13, 13, 12, 14]
    assert picked.loss_terms["choice"].flatten().tolist() == [16, 16, 15, 17]
    assert RecurrentState(hidden=state.hidden, position=state.position).select(torch.tensor([0])).fed is None


def test_a_tensor_in_two_places_is_copied_once() -> None:
    """As the memory is, which serves as the values of attention too."""
    shared, rows = torch.randn(3, 2), torch.tensor([2, 0])
    state = RecurrentState(hidden=((shared, shared + 1),), position=torch.arange(3), fed=shared)
    picked = state.select(rows)
    assert picked.fed is picked.hidden[0][0]
    assert torch.equal(picked.hidden[0][1], (shared + 1)[rows])
