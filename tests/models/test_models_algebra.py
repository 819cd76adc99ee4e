"""What holds for every member of the zoo, whatever its parts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import translate.models.scores as scores_module
from translate.config import ModelConfig
from translate.models.attention import SCOPES, SELECTIONS, masked_softmax
from translate.models.decoders import DECODERS
from translate.models.encoders import ENCODERS, SUMMARIES
from translate.models.scores import SCORES
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource, State

EMBEDDING, ENCODER, ATTENTION, DECODER = 6, 5, 7, 9  # widths


def member(
    encoder: str = "bigru",
    decoder: str = "bahdanau",
    score: str = "additive",
    feeding: bool = True,
    encoder_layers: int = 1,
    decoder_layers: int = 1,
    summary: str = "last",
    tied: str = "two",
    scope: str = "global",
    selection: str = "soft",
) -> ModelConfig:
    sections: dict[str, Any] = {
        "embedding": {"width": EMBEDDING, "dropout": 0.3, "tied": tied},
        "encoder": {
            "kind": encoder,
            "width": ENCODER,
            "layers": encoder_layers,
            "dropout": 0.3,
            "summary": summary,
        },
        "attention": {"score": score, "width": ATTENTION, "scope": scope, "selection": selection},
        "decoder": {
            "kind": decoder,
            "width": DECODER,
            "layers": decoder_layers,
            "dropout": 0.3,
            "input_feeding": feeding,
        },
    }
    return ModelConfig.model_validate(sections)


def zoo() -> dict[str, ModelConfig]:
    """Every encoder × decoder × score, every other setting by itself, and the deep ones together."""
    decoders = [(name, True) for name in DECODERS] + [("luong", False)]
    members = {}
    for encoder in ENCODERS:
        for decoder, feeding in decoders:
            for score in SCORES if decoder != "plain" else ["additive"]:
                name = f"{encoder}-{decoder}{'' if feeding else '-unfed'}-{score}"
                members[name] = member(encoder, decoder, score, feeding)
    for decoder, feeding in decoders:
        name = f"{decoder}{'' if feeding else '-unfed'}"
        members[f"{name}-two-layers"] = member("bigru", decoder, "general", feeding, 2, 2, tied="none")
        for summary in SUMMARIES:
            if (decoder, summary) != ("plain", "zero"):  # refused by the configuration
                members[f"{name}-{summary}"] = member("gru", decoder, "dot", feeding, 1, 2, summary)
        members[f"{name}-three"] = member("gru", decoder, "scaled_dot", feeding, tied="three")
    for scope in SCOPES:
        members[f"scope-{scope}"] = member(scope=scope)
    for selection in SELECTIONS:
        members[f"selection-{selection}"] = member(selection=selection)
    members["three-layers"] = member("bigru", "luong", "additive", False, 3, 3, "mean", "three")
    return members


ZOO = zoo()
every_member = pytest.mark.parametrize("config", ZOO.values(), ids=ZOO.keys())
Make = Callable[..., Any]


def run(model: Seq2Seq, inputs: Any) -> tuple[Decoded, EncodedSource]:
    decoded, source = model(inputs.src, inputs.src_valid, inputs.src_lengths, inputs.tgt_in)
    return decoded, source


def encode(model: Seq2Seq, inputs: Any) -> EncodedSource:
    return model.encode(inputs.src, inputs.src_valid, inputs.src_lengths)


def check_close(found: Tensor | None, expected: Tensor | None, tolerance: float = 1e-10) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a nest of dataclasses and tuples, in order."""
    if isinstance(value, Tensor):
        return [value]
    if value is None:
        return []
    parts = value if isinstance(value, tuple) else (getattr(value, name) for name in value.__dataclass_fields__)
    return [tensor for part in parts for tensor in tensors_in(part)]


# -- whole models -----------------------------------------------------------------------------------------------------


@every_member
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["f64", "f32"])
@torch.no_grad()
def test_forward_is_the_chain_of_steps(
    config: ModelConfig, dtype: torch.dtype, tolerance: float, make_model: Make, make_inputs: Make
) -> None:
    model, inputs = make_model(config, dtype), make_inputs()
    decoded, source = run(model, inputs)
    state = model.decoder.start(source)
    for t, token in enumerate(inputs.tgt_in.unbind(dim=1)):
        features, state, weights = model.decoder.step(token, state, source)
        check_close(features, decoded.features[:, t], tolerance)
        check_close(weights, None if decoded.weights is None else decoded.weights[:, t], tolerance)


@every_member
@torch.no_grad()
def test_shapes_are_those_of_the_legend(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs()
    decoded, source = run(model, inputs)
    (num_rows, src_length), tgt_length = inputs.src.shape, inputs.tgt_in.size(1)
    width = ENCODER * ENCODERS[config.encoder.kind].directions
    assert source.memory.shape == (num_rows, src_length, width)
    assert source.summary.shape == (num_rows, width)
    assert decoded.features.shape[:2] == (num_rows, tgt_length)
    assert decoded.weights is None or decoded.weights.shape == (num_rows, tgt_length, src_length)
    log_probs = model.decoder.output(decoded.features[:, 0], None, source)
    check_close(log_probs.exp().sum(dim=-1), torch.ones(num_rows, dtype=log_probs.dtype))
    assert log_probs.size(1) == model.decoder.embed.table.num_embeddings


@every_member
@torch.no_grad()
def test_a_batch_gives_what_each_sentence_gives_alone(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs()
    together, source = run(model, inputs)
    for row, length in enumerate(inputs.src_lengths.tolist()):
        alone, own = run(model, inputs.alone(row))
        check_close(together.features[row], alone.features[0])
        check_close(source.memory[row, :length], own.memory[0])
        check_close(source.summary[row], own.summary[0])
        if together.weights is not None and alone.weights is not None:
            check_close(together.weights[row, :, :length], alone.weights[0])


@every_member
@torch.no_grad()
def test_padding_changes_no_number(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    """Neither more of it nor what stands there."""
    model, inputs = make_model(config), make_inputs()
    plain, source = run(model, inputs)
    padded, longer = run(model, make_inputs(more_src=3, more_tgt=2, filler=11))
    num_steps, num_positions = inputs.tgt_in.size(1), inputs.src.size(1)
    check_close(padded.features[:, :num_steps], plain.features)
    check_close(longer.summary, source.summary)
    check_close(longer.memory[:, :num_positions], source.memory)
    assert not longer.memory[:, num_positions:].any()
    if padded.weights is not None:
        check_close(padded.weights[:, :num_steps, :num_positions], plain.weights)


@every_member
@torch.no_grad()
def test_weights_are_shares_of_the_real_positions(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs(more_src=2, filler=11)
    weights = run(model, inputs)[0].weights
    if config.decoder.kind == "plain":
        assert weights is None
        return
    assert weights is not None
    assert (weights >= 0).all()
    assert not weights[~inputs.src_valid.unsqueeze(1).expand_as(weights)].any()
    check_close(weights.sum(dim=-1), torch.ones(weights.shape[:2], dtype=weights.dtype))


@every_member
def test_a_source_of_nothing_but_padding_does_no_harm(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs(lengths=(8, 0, 5))
    decoded, source = run(model, inputs)
    assert decoded.features.isfinite().all()
    assert not source.memory[1].any()
    if decoded.weights is not None:
        assert not decoded.weights[1].any()
    for row in (0, 2):
        check_close(decoded.features[row], run(model, inputs.alone(row))[0].features[0])
    (decoded.features**2).sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@every_member
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_parameter_learns(config: ModelConfig, precision: str, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config, torch.float32).train(), make_inputs()
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        decoded, source = run(model, inputs)
        log_probs = model.decoder.output(decoded.features, decoded.weights, source)
    assert log_probs.dtype == torch.float32
    assert decoded.weights is None or decoded.weights.dtype == torch.float32
    loss = -log_probs.gather(2, inputs.tgt_in.unsqueeze(-1)).mean()
    loss.backward()
    # A summary of zeros leaves the bridge its bias alone.
    exceptions = {"decoder.bridge.weight"} if config.encoder.summary == "zero" else set()
    idle = set()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is not part of the model's function"
        assert parameter.grad.isfinite().all(), name
        if not parameter.grad.any():
            idle.add(name)
    assert idle == exceptions


@every_member
@torch.no_grad()
def test_evaluation_is_without_dropout(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs()
    assert torch.equal(run(model, inputs)[0].features, run(model, inputs)[0].features)
    model.train()
    assert not torch.equal(run(model, inputs)[0].features, run(model, inputs)[0].features)


@every_member
@torch.no_grad()
def test_selected_rows_go_on_as_they_would_have(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(config), make_inputs()
    rows = torch.tensor([2, 0, 2, 1, 1])
    source = encode(model, inputs)
    _, state, _ = model.decoder.step(inputs.tgt_in[:, 0], model.decoder.start(source), source)
    picked = tensors_in(model.decoder.step(inputs.tgt_in[rows, 1], state.select(rows), source.select(rows)))
    whole = tensors_in(model.decoder.step(inputs.tgt_in[:, 1], state, source))
    assert len(picked) == len(whole)
    for found, expected in zip(picked, whole, strict=True):
        check_close(found, expected[rows])


@every_member
@torch.no_grad()
def test_no_rows_at_all_are_a_batch_too(config: ModelConfig, make_model: Make, make_inputs: Make) -> None:
    """A search may drop its last sentence and still take the step."""
    model, inputs = make_model(config), make_inputs()
    none = torch.empty(0, dtype=torch.long)
    source = encode(model, inputs)
    found = model.decoder.step(none, model.decoder.start(source).select(none), source.select(none))
    assert [len(tensor) for tensor in tensors_in(found)] == [0] * len(tensors_in(found))


def test_selection_reaches_every_tensor() -> None:
    state = State((torch.arange(3.0).view(3, 1), torch.arange(3.0, 6.0).view(3, 1)), fed=torch.arange(6.0).view(3, 2))
    rows = torch.tensor([1, 1, 0, 2])
    for found, whole in zip(tensors_in(state.select(rows)), tensors_in(state), strict=True):
        assert torch.equal(found, whole[rows])
    assert State(state.hidden).select(rows).fed is None


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("tied", ["none", "two", "three"])
def test_tied_matrices_are_one(tied: str, decoder: str, make_model: Make) -> None:
    model = make_model(member(decoder=decoder, tied=tied))
    src, tgt, out = model.src_embed.table.weight, model.decoder.embed.table.weight, model.decoder.out.weight
    assert (out is tgt, src is tgt) == {"none": (False, False), "two": (True, False), "three": (True, True)}[tied]
    assert model.num_parameters == sum(p.numel() for p in set(model.parameters()))


@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
@torch.no_grad()
def test_the_target_so_far_is_all_a_step_knows(decoder: str, make_model: Make, make_inputs: Make) -> None:
    model, inputs = make_model(member(decoder=decoder, feeding=False)), make_inputs()
    before = run(model, inputs)[0].features
    inputs.tgt_in[:, 2] = 3
    after = run(model, inputs)[0].features
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.isclose(before[:, 2:], after[:, 2:]).all(dim=-1).any()


# -- parts ------------------------------------------------------------------------------------------------------------


def sample(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


MASK = torch.tensor([[True, True, False, True], [False, False, False, True], [False, False, False, False]])


def test_masked_softmax_is_softmax_of_what_is_real() -> None:
    scores = sample(3, 4) * 30
    weights = masked_softmax(scores, MASK)
    for row in range(3):
        real = MASK[row]
        exponentials = np.exp(scores[row, real].numpy() - scores[row, real].numpy().max(initial=-np.inf))
        np.testing.assert_allclose(weights[row, real].numpy(), exponentials / exponentials.sum(), atol=1e-12)
        assert not weights[row, ~real].any()


def test_masked_softmax_has_the_right_gradient() -> None:
    assert torch.autograd.gradcheck(lambda scores: masked_softmax(scores, MASK), sample(3, 4).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_masked_softmax_is_in_float32_and_finite(dtype: torch.dtype) -> None:
    """What stands at padding may be anything at all, and so may the size of the scores."""
    scores = torch.full((3, 4), 6e4, dtype=dtype)
    scores[~MASK] = float("nan")
    scores[0, 0] = -6e4
    scores.requires_grad_()
    weights = masked_softmax(scores, MASK)
    assert weights.dtype == torch.float32
    assert weights.isfinite().all()
    weights[:, 0].sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def additive(p: dict[str, Any], q: Any, m: Any) -> Any:
    return p["v.weight"][0] @ np.tanh(p["query.weight"] @ q + p["memory.weight"] @ m + p["memory.bias"])


def general(p: dict[str, Any], q: Any, m: Any) -> Any:
    return q @ p["w.weight"] @ m


def dot(p: dict[str, Any], q: Any, m: Any) -> Any:
    return q @ (p["w.weight"] @ m)


def scaled_dot(p: dict[str, Any], q: Any, m: Any) -> Any:
    return q @ (p["w.weight"] @ m) / np.sqrt(len(q))


FORMULAS = {"additive": additive, "general": general, "dot": dot, "scaled_dot": scaled_dot}
BATCH, TARGETS, SOURCES, QUERY, MEMORY = 2, 3, 4, 5, 6


def make_score(name: str) -> Any:
    torch.manual_seed(4)
    return SCORES[name](QUERY, MEMORY, ATTENTION).double()


def test_every_score_has_a_second_reading() -> None:
    assert set(FORMULAS) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_formula(name: str) -> None:
    score, query, memory = make_score(name), sample(BATCH, TARGETS, QUERY), sample(BATCH, SOURCES, MEMORY, seed=1)
    found = score(query, score.keys(memory)).detach().numpy()
    assert found.shape == (BATCH, TARGETS, SOURCES)
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    for b, t, s in np.ndindex(found.shape):
        expected = FORMULAS[name](parameters, query[b, t].numpy(), memory[b, s].numpy())
        np.testing.assert_allclose(found[b, t, s], expected, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_has_the_right_gradient(name: str) -> None:
    score = make_score(name)
    query, memory = sample(BATCH, TARGETS, QUERY).requires_grad_(), sample(BATCH, SOURCES, MEMORY).requires_grad_()
    parameters = list(score.parameters())
    assert parameters
    assert torch.autograd.gradcheck(lambda q, m, *_: score(q, score.keys(m)), (query, memory, *parameters))


@pytest.mark.parametrize("rows", [1, 2])
def test_additive_in_slices_is_additive_at_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    score = make_score("additive")
    seen: list[int] = []
    score.v.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].numel()))

    def results() -> list[Tensor]:
        score.zero_grad()
        query, memory = sample(BATCH, TARGETS, QUERY).requires_grad_(), sample(BATCH, SOURCES, MEMORY).requires_grad_()
        found = score(query, score.keys(memory))
        (found * sample(*found.shape, seed=5)).sum().backward()
        gradients = [query.grad, memory.grad, *(parameter.grad.clone() for parameter in score.parameters())]
        return [found, *(gradient for gradient in gradients if gradient is not None)]

    whole = results()
    per_row = BATCH * SOURCES * ATTENTION
    assert seen == [TARGETS * per_row]
    seen.clear()
    monkeypatch.setattr(scores_module, "MOST_ELEMENTS", rows * per_row + 1)
    sliced = results()
    assert max(seen) == rows * per_row
    assert len(whole) == len(sliced)
    for found, expected in zip(sliced, whole, strict=True):
        check_close(found, expected, 1e-12)
