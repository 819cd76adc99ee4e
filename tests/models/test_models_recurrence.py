"""Our recurrent loops against torch.nn.GRU with the same weights, values and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from translate.config import EncoderConfig
from translate.models.encoders import ENCODERS, Encoder
from translate.models.recurrence import GRUStack

BATCH, STEPS, INPUT, EXTRA, WIDTH = 3, 4, 5, 6, 7
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
LENGTHS = torch.tensor([4, 9, 1, 6])


def sample(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def make_stack(extra: int, layers: int) -> tuple[GRUStack, nn.GRU]:
    """A stack, and torch's GRU with its weights."""
    torch.manual_seed(0)
    stack = GRUStack(INPUT, extra, WIDTH, layers, dropout=0.3).double().eval()
    reference = nn.GRU(INPUT + extra, WIDTH, layers, batch_first=True).double()
    with torch.no_grad():
        for theirs, ours in zip(reference.parameters(), stack.torch_weights(), strict=True):
            theirs.copy_(ours)
    return stack, reference


def by_layer(stack: GRUStack, of_parameter: dict[Tensor, Tensor]) -> list[Tensor]:
    """Gradients in torch's order, the two halves of the first matrix as one."""
    halves = [stack.input.weight] + ([stack.extra.weight] if stack.extra is not None else [])
    first = torch.cat([of_parameter[half] for half in halves], dim=1)
    others = [stack.recurrent.weight, stack.input.bias, stack.recurrent.bias, *stack.upper.parameters()]
    return [first, *(of_parameter[parameter] for parameter in others)]


def step_through(stack: GRUStack, inputs: Tensor, extra: Tensor, hidden: tuple[Tensor, ...]) -> list[Tensor]:
    """The states of all layers after every step, as L tensors (B, T, H)."""
    history = []
    for t in range(inputs.size(1)):
        hidden = stack.step(stack.hoist(inputs[:, t]), extra[:, t], hidden)
        history.append(hidden)
    return [torch.stack(layer, dim=1) for layer in zip(*history, strict=True)]


def gradients(loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Zero for a leaf that plays no part, as an extra input of no width."""
    return list(torch.autograd.grad(loss, list(leaves), materialize_grads=True))


def check_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("extra_width", [0, EXTRA])
@pytest.mark.parametrize("path", ["step", "unroll"])
def test_a_stack_is_torchs_gru(path: str, extra_width: int, layers: int) -> None:
    stack, reference = make_stack(extra_width, layers)
    inputs = sample(BATCH, STEPS, INPUT, seed=1).requires_grad_()
    extra = sample(BATCH, STEPS, extra_width, seed=2).requires_grad_()
    start = sample(layers, BATCH, WIDTH, seed=3).requires_grad_()
    if path == "step":
        all_layers = step_through(stack, inputs, extra, tuple(start))
        top = all_layers[-1]
        assert stack.num_layers == layers
    else:
        top = stack.unroll(torch.cat([inputs, extra], dim=-1), tuple(start))
    expected, final = reference(torch.cat([inputs, extra], dim=-1), start)
    assert top.shape == (BATCH, STEPS, WIDTH)
    check_close(top, expected)
    if path == "step":
        for layer, states in enumerate(all_layers):
            check_close(states[:, -1], final[layer])
    direction = sample(*top.shape, seed=4)
    given, parameters = [inputs, extra, start], list(stack.parameters())
    found = gradients((top * direction).sum(), [*given, *parameters])
    wanted = gradients((expected * direction).sum(), [*given, *reference.parameters()])
    ours = by_layer(stack, dict(zip(parameters, found[3:], strict=True)))
    for one, other in zip([*found[:3], *ours], wanted, strict=True):
        check_close(one, other)


def test_hoisting_all_steps_is_hoisting_each() -> None:
    stack, _ = make_stack(EXTRA, 2)
    inputs = sample(BATCH, STEPS, INPUT, seed=1)
    assert stack.hoist(inputs).shape == (BATCH, STEPS, 3 * WIDTH)
    for t in range(STEPS):
        check_close(stack.hoist(inputs)[:, t], stack.hoist(inputs[:, t]))


def test_dropout_sits_between_layers_only() -> None:
    """The top state is the query and goes on undisturbed; a single layer has nothing to drop."""
    inputs, extra = sample(BATCH, STEPS, INPUT, seed=1), sample(BATCH, STEPS, EXTRA, seed=2)
    for layers, differs in ((1, False), (2, True)):
        stack, _ = make_stack(EXTRA, layers)
        start = tuple(sample(layers, BATCH, WIDTH, seed=3))
        still = step_through(stack, inputs, extra, start)
        stack.train()
        shaken = step_through(stack, inputs, extra, start)
        check_close(shaken[0], still[0])
        assert torch.equal(shaken[-1], still[-1]) is not differs


def make_encoder(kind: str, layers: int) -> tuple[Encoder, nn.GRU]:
    """An encoder, and torch's GRU with its weights."""
    torch.manual_seed(0)
    encoder = ENCODERS[kind](INPUT, EncoderConfig(width=WIDTH, layers=layers, dropout=0.3)).double().eval()
    two = encoder.directions == 2
    reference = nn.GRU(INPUT, WIDTH, layers, batch_first=True, bidirectional=two).double()
    with torch.no_grad():
        for own, other in zip(parameters_of(encoder), reference.parameters(), strict=True):
            other.copy_(own)
    return encoder, reference


def parameters_of(encoder: Encoder) -> list[Tensor]:
    """In the order of torch's GRU: layers, within them directions, within these weights and biases."""
    return [getattr(gru, f"{name}_l0") for layer in encoder.layers for gru in layer for name in NAMES]  # type: ignore[union-attr]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["gru", "bigru"])
def test_an_encoder_is_torchs_gru_on_packed_sentences(kind: str, layers: int) -> None:
    encoder, reference = make_encoder(kind, layers)
    embedded = sample(len(LENGTHS), 9, INPUT, seed=1).requires_grad_()
    valid = torch.arange(9) < LENGTHS.unsqueeze(1)
    memory, final = encoder(embedded, valid, LENGTHS)
    packed = pack_padded_sequence(embedded, LENGTHS, batch_first=True, enforce_sorted=False)
    states, last = reference(packed)
    expected, _ = pad_packed_sequence(states, batch_first=True)  # zero at padding, as our memory is
    check_close(memory, expected)
    expected_final = torch.cat(list(last[-encoder.directions :]), dim=-1)
    check_close(final, expected_final)
    seen, ended = sample(*memory.shape, seed=2), sample(*final.shape, seed=3)
    found = gradients((memory * seen).sum() + (final * ended).sum(), [embedded, *parameters_of(encoder)])
    wanted = gradients((expected * seen).sum() + (expected_final * ended).sum(), [embedded, *reference.parameters()])
    for one, other in zip(found, wanted, strict=True):
        check_close(one, other)
