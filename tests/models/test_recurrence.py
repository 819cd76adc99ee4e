"""Our recurrent layers against torch's own with the same weights, and against plain loops where torch has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.decoder_readings import torch_weights
from tests.models.small_models import check_close, sample, shake
from translate import kernels
from translate.models.recurrence import CELLS, GRUCell, Hidden, LayerState, RecurrentLayer, RecurrentStack

BATCH, STEPS, INPUT, EXTRA, WIDTH = 3, 4, 5, 6, 7
TORCH: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}
every_cell = pytest.mark.parametrize("cell", CELLS)


def make_stack(cell: str, extra: int, layers: int, norm: bool = False, dropout: float = 0.3) -> RecurrentStack:
    return shake(RecurrentStack(INPUT, extra, WIDTH, layers, dropout, cell, norm).double().eval())


def layers_of(stack: RecurrentStack) -> list[RecurrentLayer]:
    return [stack.layer(index) for index in range(stack.num_layers)]


def weights_of(stack: RecurrentStack) -> list[Tensor]:
    """In the order of torch's own: for each layer weight_ih, weight_hh, bias_ih, bias_hh."""
    return [weight for layer in layers_of(stack) for weight in torch_weights(layer)]


def make_reference(stack: RecurrentStack, cell: str, extra: int) -> nn.RNNBase:
    """torch's stack with the same weights."""
    reference = TORCH[cell](INPUT + extra, WIDTH, stack.num_layers, batch_first=True).double()
    with torch.no_grad():
        for theirs, ours in zip(reference.parameters(), weights_of(stack), strict=True):
            theirs.copy_(ours)
    assert isinstance(reference, nn.RNNBase)
    return reference


def all_gates(layer: RecurrentLayer, inputs: Tensor, extra: Tensor) -> Tensor:
    """All that the inputs of one step give to the gates: (B, E), (B, X) -> (B, gates · H)."""
    gates = layer.input_gates(inputs)
    return gates if layer.extra is None else layer.add_extra(gates, layer.extra(extra))


def step_through(
    stack: RecurrentStack, inputs: Tensor, extra: Tensor, hidden: Hidden, masks: tuple[Tensor, ...] = ()
) -> tuple[list[Tensor], Hidden]:
    """The states of all layers after every step, as L tensors (B, T, H), and the last state."""
    history = []
    for t in range(inputs.size(1)):
        hidden = stack.step(all_gates(stack.lowest, inputs[:, t], extra[:, t]), hidden, masks)
        history.append([state[0] for state in hidden])
    return [torch.stack(layer, dim=1) for layer in zip(*history, strict=True)], hidden


def make_start(stack: RecurrentStack) -> Hidden:
    return stack.hidden(sample(BATCH, stack.num_tensors * WIDTH, seed=3))


def gradients(loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Zero for a leaf that plays no part, as an extra input of no width."""
    return list(torch.autograd.grad(loss, list(leaves), materialize_grads=True))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("extra_width", [0, EXTRA])
@pytest.mark.parametrize("path", ["step", "unroll"])
@every_cell
def test_a_stack_is_torchs_own(cell: str, path: str, extra_width: int, layers: int) -> None:
    stack = make_stack(cell, extra_width, layers)
    reference = make_reference(stack, cell, extra_width)
    inputs = sample(BATCH, STEPS, INPUT, seed=1).requires_grad_()
    extra = sample(BATCH, STEPS, extra_width, seed=2).requires_grad_()
    start = sample(CELLS[cell].num_states * layers, BATCH, WIDTH, seed=3).requires_grad_()
    assert stack.num_tensors == len(start)
    hidden = stack.hidden(torch.cat(list(start), dim=-1))
    theirs = start if cell == "gru" else (start[:layers], start[layers:])
    expected, final = reference(torch.cat([inputs, extra], dim=-1), theirs)
    if path == "step":
        every, last = step_through(stack, inputs, extra, hidden)
        top = every[-1]
        parts = [torch.stack(part) for part in zip(*last, strict=True)]  # h, and for an LSTM c: (L, B, H)
        check_close(torch.cat(parts), final if cell == "gru" else torch.cat(final))
        check_close(last[-1][0], expected[:, -1])
    else:
        top = stack.unroll(torch.cat([inputs, extra], dim=-1), hidden)
    assert top.shape == (BATCH, STEPS, WIDTH)
    check_close(top, expected)
    direction, given = sample(*top.shape, seed=4), [inputs, extra, start]
    ours = list(stack.parameters())
    found = gradients((top * direction).sum(), [*given, *ours])
    wanted = gradients((expected * direction).sum(), [*given, *reference.parameters()])
    of_parameter = dict(zip(ours, found[3:], strict=True))
    for one, other in zip([*found[:3], *in_torchs_order(stack, of_parameter)], wanted, strict=True):
        check_close(one, other)


def in_torchs_order(stack: RecurrentStack, of_parameter: Mapping[Any, Tensor]) -> list[Tensor]:
    """Gradients of our parameters; the two parts of an input matrix are one."""
    ordered = []
    for layer in layers_of(stack):
        parts = [layer.input.weight] + ([layer.extra.weight] if layer.extra is not None else [])
        ordered.append(torch.cat([of_parameter[part] for part in parts], dim=1))
        ordered += [of_parameter[p] for p in (layer.recurrent.weight, layer.input.bias, layer.recurrent.bias)]
    return ordered


# -- plain loops -------------------------------------------------------------------------------------------------------


def plain_step(layer: RecurrentLayer, inputs: Tensor, hidden: LayerState, mask: Tensor | None = None) -> LayerState:
    """One step as the equations have it: Ba et al. 2016, eq. 20-22, with cuDNN's place of the reset gate."""
    weight_ih, weight_hh, bias_ih, bias_hh = torch_weights(layer)
    past = hidden[0] if mask is None else hidden[0] * mask
    from_input, from_past = inputs @ weight_ih.T + bias_ih, past @ weight_hh.T + bias_hh
    if layer.input_norm is not None and layer.recurrent_norm is not None:
        from_input, from_past = normalise(from_input, layer.input_norm), normalise(from_past, layer.recurrent_norm)
    if layer.kind == "gru":
        (ri, zi, ni), (rh, zh, nh) = from_input.chunk(3, dim=1), from_past.chunk(3, dim=1)
        r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
        return ((1 - z) * torch.tanh(ni + r * nh) + z * hidden[0],)
    i, f, g, o = (from_input + from_past).chunk(4, dim=1)
    cell = torch.sigmoid(f) * hidden[1] + torch.sigmoid(i) * torch.tanh(g)
    seen = cell if layer.cell_norm is None else normalise(cell, layer.cell_norm)
    return torch.sigmoid(o) * torch.tanh(seen), cell


def normalise(values: Tensor, norm: nn.LayerNorm) -> Tensor:
    """g (x − mean) / deviation + b, the mean and the deviation those of a row."""
    mean, variance = values.mean(dim=1, keepdim=True), values.var(dim=1, keepdim=True, correction=0)
    return norm.weight * (values - mean) / torch.sqrt(variance + norm.eps) + norm.bias


def plain_loop(stack: RecurrentStack, inputs: Tensor, hidden: Hidden, masks: tuple[Tensor, ...] = ()) -> Tensor:
    """Layer after layer, each with masks for its recurrence and for what it reads: the top states (B, T, H)."""
    count, states = stack.num_layers, inputs
    for index, layer in enumerate(layers_of(stack)):
        if masks and index:
            states = states * masks[count + index - 1].unsqueeze(1)
        own, outputs = hidden[index], []
        for t in range(states.size(1)):
            own = plain_step(layer, states[:, t], own, masks[index] if masks else None)
            outputs.append(own[0])
        states = torch.stack(outputs, dim=1)
    return states


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@every_cell
def test_both_paths_are_the_plain_loop(cell: str, layers: int, norm: bool, masked: bool) -> None:
    """With and without layer norm and variational masks, values and gradients."""
    stack = make_stack(cell, EXTRA, layers, norm, dropout=0.5)
    inputs = sample(BATCH, STEPS, INPUT, seed=1).requires_grad_()
    extra = sample(BATCH, STEPS, EXTRA, seed=2).requires_grad_()
    start = make_start(stack)
    torch.manual_seed(7)
    masks = stack.train().masks(inputs) if masked else ()
    stack.eval()
    both = torch.cat([inputs, extra], dim=-1)
    expected = plain_loop(stack, both, start, masks)
    leaves = [inputs, extra, *stack.parameters()]
    direction = sample(*expected.shape, seed=4)
    wanted = gradients((expected * direction).sum(), leaves)
    for found in (stack.unroll(both, start, masks), step_through(stack, inputs, extra, start, masks)[0][-1]):
        check_close(found, expected)
        for one, other in zip(gradients((found * direction).sum(), leaves), wanted, strict=True):
            check_close(one, other)


@pytest.mark.parametrize("norm", [False, True])
@every_cell
def test_unrolling_has_the_right_gradient(cell: str, norm: bool) -> None:
    layer = shake(RecurrentLayer(2, 0, 3, cell, norm).double())
    start = sample(CELLS[cell].num_states, 2, 3, seed=3).requires_grad_()
    inputs = sample(2, 3, 2, seed=1).requires_grad_()

    def unroll(inputs: Tensor, start: Tensor, *_: Tensor) -> Tensor:
        return layer.unroll(inputs, tuple(start))

    assert torch.autograd.gradcheck(unroll, (inputs, start, *layer.parameters()))


@every_cell
def test_only_what_needs_the_loop_takes_it(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def spy_on(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def spy(*given: Any) -> Any:
            calls.append(name)
            return function(*given)

        monkeypatch.setattr(owner, name, spy)

    spy_on(kernels, cell)
    spy_on(RecurrentLayer, "step")
    inputs, mask = sample(BATCH, STEPS, INPUT, seed=1), torch.ones(BATCH, WIDTH, dtype=torch.float64)
    for norm, given in ((False, None), (False, mask), (True, None)):
        calls.clear()
        layer = shake(RecurrentLayer(INPUT, 0, WIDTH, cell, norm).double())
        layer.unroll(inputs, layer.start(inputs), given)
        assert calls == ([cell] if not norm and given is None else ["step"] * STEPS)


@every_cell
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("extra_width", [0, EXTRA])
def test_input_gates_of_all_steps_are_those_of_each(cell: str, extra_width: int, norm: bool) -> None:
    layer, inputs = make_stack(cell, extra_width, 2, norm).lowest, sample(BATCH, STEPS, INPUT, seed=1)
    gates = layer.input_gates(inputs)
    assert gates.shape == (BATCH, STEPS, CELLS[cell].num_gates * WIDTH)
    for t in range(STEPS):
        check_close(gates[:, t], layer.input_gates(inputs[:, t]))
    check_close(layer.input_gates_of(inputs @ layer.input.weight.T), gates)


@every_cell
def test_a_state_before_the_first_step_is_nil(cell: str) -> None:
    start = RecurrentLayer(INPUT, 0, WIDTH, cell, norm=False).start(sample(BATCH, STEPS, INPUT))
    assert len(start) == CELLS[cell].num_states
    assert all(part.shape == (BATCH, WIDTH) and not part.any() for part in start)


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["step", "unroll"])
@every_cell
def test_dropout_sits_between_layers_only(cell: str, path: str) -> None:
    """The top state is the query and goes on undisturbed; a single layer has nothing to drop."""
    inputs, extra = sample(BATCH, STEPS, INPUT, seed=1), sample(BATCH, STEPS, EXTRA, seed=2)
    for layers, differs in ((1, False), (2, True)):
        stack = make_stack(cell, EXTRA, layers)
        start = make_start(stack)

        def top(stack: RecurrentStack = stack, start: Hidden = start) -> Tensor:
            if path == "step":
                return step_through(stack, inputs, extra, start)[0][-1]
            return stack.unroll(torch.cat([inputs, extra], dim=-1), start)

        still = top()
        stack.train()
        assert torch.equal(top(), still) is not differs
        lowest = step_through(stack, inputs, extra, start)[0][0]
        check_close(lowest, step_through(stack.eval(), inputs, extra, start)[0][0])


@pytest.mark.parametrize("layers", [1, 2, 3])
@every_cell
def test_variational_masks_are_drawn_for_each_sentence(cell: str, layers: int) -> None:
    """One for the recurrence of each layer and one for what each but the first reads; none in evaluation."""
    stack, like = make_stack(cell, 0, layers, dropout=0.25), sample(40, STEPS, INPUT)
    assert stack.masks(like) == ()
    assert make_stack(cell, 0, layers, dropout=0.0).train().masks(like) == ()
    torch.manual_seed(8)
    masks = stack.train().masks(like)
    assert len(masks) == 2 * layers - 1
    for mask in masks:
        assert mask.shape == (40, WIDTH)
        assert mask.dtype == like.dtype
        check_close(mask.unique(), torch.tensor([0.0, 1 / 0.75], dtype=torch.float64))
        assert 0.15 < (mask == 0).double().mean() < 0.35
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == len(masks)


@every_cell
def test_a_unit_that_is_dropped_is_dropped_at_every_step(cell: str) -> None:
    """Its state changes, but at no step does the recurrence read it."""
    stack = make_stack(cell, 0, 1, dropout=0.5).train()
    inputs, extra = sample(BATCH, STEPS, INPUT, seed=1), sample(BATCH, STEPS, 0)
    start = make_start(stack)
    torch.manual_seed(9)
    masks = stack.masks(inputs)
    read = []
    stack.lowest.recurrent.register_forward_hook(lambda module, given, found: read.append(given[0]))
    step_through(stack, inputs, extra, start, masks)
    assert len(read) == STEPS
    for states in read:
        assert torch.equal(states == 0, masks[0] == 0)


# -- how they start ----------------------------------------------------------------------------------------------------


@every_cell
def test_recurrent_matrices_start_orthogonal_and_an_lstm_remembers(cell: str) -> None:
    layer = RecurrentLayer(INPUT, EXTRA, WIDTH, cell, norm=False)
    nn.init.zeros_(layer.input.bias)
    layer.initialise()
    for gate in layer.recurrent.weight.detach().chunk(CELLS[cell].num_gates):
        check_close(gate @ gate.T, torch.eye(WIDTH), 1e-5)
    assert layer.extra is not None
    for product in (layer.input, layer.extra):
        for gate in product.weight.detach().chunk(CELLS[cell].num_gates):
            assert gate.abs().max() <= (6 / (gate.size(0) + gate.size(1))) ** 0.5  # Glorot and Bengio 2010, eq. 16
    forget = layer.input.bias.detach()
    if cell == "lstm":
        assert forget[WIDTH : 2 * WIDTH].tolist() == [1.0] * WIDTH
        forget = torch.cat([forget[:WIDTH], forget[2 * WIDTH :]])
    assert not forget.any()


def test_a_gru_step_may_mix_precisions() -> None:
    """Under autocast products are in half precision, and the state is not: it follows what the inputs give."""
    gate_inputs, recurrent = sample(3, 12, seed=1).float(), sample(3, 12, seed=2).bfloat16()
    hidden = sample(3, 4, seed=3).bfloat16()
    (found,) = GRUCell.update(gate_inputs, recurrent, (hidden,), None)
    assert found.dtype == torch.float32
    (expected,) = GRUCell.update(gate_inputs, recurrent.float(), (hidden.float(),), None)
    check_close(found, expected, 1e-6)
