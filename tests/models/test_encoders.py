"""Encoders against torch's own on packed sentences, and each option of theirs against a plain reading of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.models import readings
from tests.models.covering import DECODER, in_tree
from tests.models.decoder_readings import torch_weights
from tests.models.readings import parameters_of
from tests.models.small_models import check_close, encode, make_inputs, make_model, run, sample, shake
from translate.config import EncoderConfig
from translate.models.decoders import RecurrentDecoder
from translate.models.encoders import ENCODERS
from translate.models.encoders.recurrent import RecurrentEncoder
from translate.models.layers import SelfAttention, TokenEmbedding, dropout
from translate.models.recurrence import RecurrentLayer
from translate.models.summaries import SUMMARIES

INPUT, WIDTH = 5, 7
LENGTHS = torch.tensor([4, 9, 1, 6])
VALID = torch.arange(9) < LENGTHS.unsqueeze(1)
TORCH: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}
RECURRENT = [kind for kind in in_tree("encoder.kind") if issubclass(ENCODERS[kind], RecurrentEncoder)]
every_encoder = pytest.mark.parametrize("kind", RECURRENT)


def make_encoder(kind: str, **settings: Any) -> RecurrentEncoder:
    config = EncoderConfig.model_validate({"kind": kind, "width": WIDTH, "dropout": 0.3, **settings})
    encoder = ENCODERS[kind](INPUT, config)
    assert isinstance(encoder, RecurrentEncoder)
    return shake(encoder.double().eval())


def make_embedded() -> Tensor:
    return sample(len(LENGTHS), 9, INPUT, seed=1)


def read(encoder: RecurrentEncoder, embedded: Tensor, lengths: Tensor = LENGTHS) -> tuple[Tensor, Tensor]:
    """The memory, zero at padding as the model makes it, and the final states."""
    valid = torch.arange(embedded.size(1)) < lengths.unsqueeze(1)
    memory, final = encoder(embedded, valid, lengths)
    return memory * valid.unsqueeze(-1), final


def layers_of(encoder: RecurrentEncoder) -> list[list[RecurrentLayer]]:
    """For each layer its directions."""
    return [[part for part in layer.children() if isinstance(part, RecurrentLayer)] for layer in encoder.layers]


def make_reference(encoder: RecurrentEncoder, layers: list[list[RecurrentLayer]]) -> nn.RNNBase:
    """torch's own with the weights of these layers."""
    first = layers[0][0].input.weight.size(1)
    made = TORCH[encoder.cell](first, WIDTH, len(layers), batch_first=True, bidirectional=len(layers[0]) == 2)
    weights = [weight for layer in layers for direction in layer for weight in torch_weights(direction)]
    with torch.no_grad():
        for theirs, ours in zip(made.parameters(), weights, strict=True):
            theirs.copy_(ours)
    assert isinstance(made, nn.RNNBase)
    return made.double()


def read_packed(reference: nn.RNNBase, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """States (B, S, D), zero at padding, and final states (B, D)."""
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    states, last = reference(packed)
    last = last[0] if isinstance(last, tuple) else last  # an LSTM's cells come after its states
    padded, _ = pad_packed_sequence(states, batch_first=True)
    return padded, torch.cat(list(last[-(2 if reference.bidirectional else 1) :]), dim=-1)


def test_every_encoder_has_a_second_reading() -> None:
    """torch's own, for a recurrent one; another encoder of the tree needs a reading of its own in readings.py."""
    assert set(RECURRENT) == set(in_tree("encoder.kind"))


@pytest.mark.parametrize("layers", [1, 2, 3])
@every_encoder
def test_an_encoder_is_torchs_own_on_packed_sentences(kind: str, layers: int) -> None:
    encoder = make_encoder(kind, layers=layers)
    reference = make_reference(encoder, layers_of(encoder))
    embedded = make_embedded().requires_grad_()
    memory, final = read(encoder, embedded)
    expected, expected_final = read_packed(reference, embedded)
    check_close(memory, expected)
    check_close(final, expected_final)
    seen, ended = sample(*memory.shape, seed=2), sample(*final.shape, seed=3)
    # In the order of torch's parameters, which is weights first, then biases.
    ours = [
        parameter
        for layer in layers_of(encoder)
        for part in layer
        for parameter in (part.input.weight, part.recurrent.weight, part.input.bias, part.recurrent.bias)
    ]
    found = torch.autograd.grad((memory * seen).sum() + (final * ended).sum(), [embedded, *ours])
    wanted = torch.autograd.grad(
        (expected * seen).sum() + (expected_final * ended).sum(), [embedded, *reference.parameters()]
    )
    for one, other in zip(found, wanted, strict=True):
        check_close(one, other)


@pytest.mark.parametrize(
    "settings", [{}, {"layers": 2}, {"layers": 2, "residual": True}, {"layer_norm": True}], ids=str
)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
@torch.no_grad()
def test_reverse_is_reading_the_reversed_sentence(kind: str, settings: dict[str, Any]) -> None:
    forward, backward = make_encoder(kind, **settings), make_encoder(kind, reverse=True, **settings)
    embedded = make_embedded()
    memory, final = read(backward, embedded)
    for row, length in enumerate(LENGTHS.tolist()):
        reversed_row = embedded[row : row + 1, :length].flip(1)
        expected, expected_final = read(forward, reversed_row, LENGTHS[row : row + 1])
        check_close(memory[row, :length], expected[0].flip(0))
        check_close(final[row], expected_final[0])


@every_encoder
@torch.no_grad()
def test_a_residual_layer_adds_to_what_it_reads(kind: str) -> None:
    """From the second layer on; the final states are those of the last layer itself."""
    encoder, embedded = make_encoder(kind, layers=3, residual=True), make_embedded()
    expected, final = embedded, torch.empty(0)
    for index, layer in enumerate(layers_of(encoder)):
        states, final = read_packed(make_reference(encoder, [layer]), expected)
        expected = expected + states if index else states
    memory, found_final = read(encoder, embedded)
    check_close(memory, expected)
    check_close(found_final, final)


@every_encoder
@torch.no_grad()
def test_layer_norm_is_inside_the_recurrence(kind: str) -> None:
    """Both directions step by step, each sentence by itself; the step is checked in test_recurrence.py."""
    encoder, embedded = make_encoder(kind, layer_norm=True), make_embedded()
    memory, final = read(encoder, embedded)
    ((*directions,),) = layers_of(encoder)
    for row, length in enumerate(LENGTHS.tolist()):
        columns, ends = [], []
        for number, layer in enumerate(directions):
            assert layer.input_norm is not None
            own = embedded[row : row + 1, :length]
            hidden, states = layer.start(own), []
            for t in range(length) if number == 0 else reversed(range(length)):
                hidden = layer.step(layer.input_gates(own[:, t]), hidden)
                states.append(hidden[0][0])
            columns.append(torch.stack(states if number == 0 else states[::-1]))
            ends.append(hidden[0][0])
        check_close(memory[row, :length], torch.cat(columns, dim=-1))
        check_close(final[row], torch.cat(ends))


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@torch.no_grad()
def test_variational_dropout_draws_once_for_each_sentence(kind: str) -> None:
    """First for the recurrence, then for the memory."""
    encoder = make_encoder(kind, variational=True, dropout=0.5)
    embedded, ((layer,),) = make_embedded(), layers_of(encoder)
    calm, _ = read(encoder, embedded)
    torch.manual_seed(4)
    memory, _ = read(encoder.train(), embedded)
    torch.manual_seed(4)
    inside = dropout(torch.ones(4, WIDTH, dtype=torch.float64), 0.5)
    outside = dropout(torch.ones(4, 1, WIDTH, dtype=torch.float64), 0.5)
    hidden, states = layer.start(embedded), []
    for t in range(9):
        hidden = layer.step(layer.input_gates(embedded[:, t]), hidden, inside)
        states.append(hidden[0])
    check_close(memory, torch.stack(states, dim=1) * outside * VALID.unsqueeze(-1))
    assert not torch.allclose(memory * (outside != 0), calm * outside), "nothing was dropped in the recurrence"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("variational", [False, True])
@every_encoder
@torch.no_grad()
def test_the_same_units_are_dropped_at_all_positions_or_not(kind: str, variational: bool, layers: int) -> None:
    encoder, embedded = make_encoder(kind, layers=layers, variational=variational, dropout=0.5), make_embedded()
    torch.manual_seed(5)
    memory, _ = read(encoder.train(), embedded)
    dropped = memory == 0
    assert 0.3 < dropped[VALID].double().mean() < 0.7
    alike = [bool((dropped[row, :length] == dropped[row, :1]).all()) for row, length in enumerate(LENGTHS.tolist())]
    assert alike == [variational, variational, True, variational]  # a sentence of one position is like itself
    assert not torch.equal(dropped[0, 0], dropped[1, 0])


def test_word_dropout_hides_whole_words_in_training() -> None:
    table = shake(nn.Embedding(6, INPUT).double())
    embed, tokens = TokenEmbedding(table, dropout=0.0, word_dropout=0.25), torch.arange(6).repeat(50, 10)
    assert torch.equal(embed.eval()(tokens), table(tokens))
    torch.manual_seed(6)
    seen = embed.train()(tokens)
    hidden = (seen == 0).all(dim=-1)
    assert 0.23 < hidden.double().mean() < 0.27
    check_close(seen[~hidden], table(tokens)[~hidden] / 0.75)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_word_dropout_is_that_of_its_side(side: str) -> None:
    model = make_model(**{f"{side}__word_dropout": 0.2})
    shares = {"encoder": model.src_embed.word_dropout, "decoder": model.decoder.embed.word_dropout}
    assert shares == {"encoder": 0.0, "decoder": 0.0, side: 0.2}


# -- self-attention and summaries --------------------------------------------------------------------------------------


@torch.no_grad()
def test_self_attention_is_its_formula() -> None:
    layer, memory = shake(SelfAttention(WIDTH).double()), sample(4, 9, WIDTH, seed=2)
    found, p = layer(memory, VALID), parameters_of(layer)
    wq, wk, wv = np.split(p["project.weight"], 3)
    for row, length in enumerate(LENGTHS.tolist()):
        m = memory[row, :length].numpy()
        for s in range(length):
            weights = readings.softmax(np.array([(wq @ m[s]) @ (wk @ m[r]) / np.sqrt(WIDTH) for r in range(length)]))
            x = m[s] + p["out.weight"] @ sum(weights[r] * (wv @ m[r]) for r in range(length)) + p["out.bias"]
            expected = p["norm.weight"] * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + p["norm.bias"]
            np.testing.assert_allclose(found[row, s].numpy(), expected, atol=1e-12)


def test_self_attention_has_the_right_gradient() -> None:
    layer, memory = shake(SelfAttention(3).double()), sample(2, 4, 3, seed=2).requires_grad_()
    valid = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert torch.autograd.gradcheck(lambda memory, *_: layer(memory, valid), (memory, *layer.parameters()))


@every_encoder
@torch.no_grad()
def test_self_attention_comes_last(kind: str) -> None:
    """On the memory; the final states are those of the encoder."""
    model = make_model(encoder__kind=kind, encoder__layers=2, encoder__self_attention=True, encoder__summary="last")
    inputs = make_inputs()
    _, source = run(model, inputs)
    assert model.self_attention is not None
    plain, final = model.encoder(model.src_embed(inputs.src), inputs.src_valid, inputs.src_lengths)
    attended = model.self_attention(plain, inputs.src_valid)
    check_close(source.memory, attended * inputs.src_valid.unsqueeze(-1))
    assert not torch.allclose(source.memory[inputs.src_valid], plain[inputs.src_valid])
    check_close(source.summary, final)
    assert not source.memory[~inputs.src_valid].any()


def test_every_summary_has_a_second_reading() -> None:
    assert set(readings.SUMMARIES) == set(in_tree("encoder.summary"))


@pytest.mark.parametrize("name", in_tree("encoder.summary"))
@torch.no_grad()
def test_a_summary_is_its_formula(name: str) -> None:
    summary = shake(SUMMARIES[name](WIDTH).double())
    memory, final = sample(4, 9, WIDTH, seed=2) * VALID.unsqueeze(-1), sample(4, WIDTH, seed=3)
    found, p = summary(memory, final, VALID), parameters_of(summary)
    for row, length in enumerate(LENGTHS.tolist()):
        expected = readings.SUMMARIES[name](p, memory[row, :length].numpy(), final[row].numpy())
        np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_model_starts_from_its_summary(name: str) -> None:
    """s_0 = tanh(W summary + b), cut into the layers' states and, for an LSTM, their cells."""
    model = make_model(encoder__summary=name, decoder__layers=2, decoder__cell="lstm")
    source = encode(model, make_inputs())
    assert type(model.summary) is SUMMARIES[name]
    _, final = model.encoder(model.src_embed(source.tokens), source.valid, make_inputs().src_lengths)
    check_close(source.summary, model.summary(source.memory, final, source.valid))
    assert isinstance(model.decoder, RecurrentDecoder)
    state = model.decoder.start(source)
    bridge = model.decoder.bridge
    (low, low_cell), (top, top_cell) = state.hidden
    expected = torch.tanh(source.summary @ bridge.weight.T + bridge.bias)
    check_close(torch.cat([low, top, low_cell, top_cell], dim=-1), expected)
    assert [part.shape for layer in state.hidden for part in layer] == [(3, DECODER)] * 4
    assert state.position.tolist() == [0, 0, 0]
