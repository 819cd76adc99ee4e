"""What holds for every model, whatever its parts are: for each value by itself, and wherever two values meet."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from tests.models.covering import ENCODER, Row, configure, cover, describe, one_at_a_time
from tests.models.small_models import Inputs, build, check_close, encode, make_inputs, output, run, tensors_in
from translate.config import ModelConfig
from translate.models.encoders import ENCODERS
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource

ROWS: dict[str, Row] = {describe(row): row for row in (*one_at_a_time(), *cover()[0])}
CONFIGS = {name: configure(row) for name, row in ROWS.items()}
every_model = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
INPUTS = make_inputs()
HOLLOW = make_inputs(lengths=(7, 0, 5))  # in which one source is nothing but padding
NUM_ROWS, NUM_POSITIONS = INPUTS.src.shape
NUM_STEPS = INPUTS.tgt_in.size(1)


@cache
def built(config: ModelConfig) -> Seq2Seq:
    """A model that all tests share, in float64 and evaluation mode; none may leave it changed."""
    return build(config)


@cache
@torch.no_grad()
def answer(config: ModelConfig) -> tuple[Decoded, EncodedSource]:
    """What it makes of INPUTS."""
    return run(built(config), INPUTS)


@every_model
@torch.no_grad()
def test_forward_is_the_chain_of_steps(config: ModelConfig) -> None:
    model, (decoded, source) = built(config), answer(config)
    state = model.decoder.start(source)
    for t, token in enumerate(INPUTS.tgt_in.unbind(dim=1)):
        features, state, weights = model.decoder.step(token, state, source)
        check_close(features, decoded.features[:, t])
        check_close(weights, None if decoded.weights is None else decoded.weights[:, t])


@every_model
@torch.no_grad()
def test_steps_of_a_search_are_those_of_the_decoder(config: ModelConfig) -> None:
    """What is formed once for a sentence changes nothing of its steps, whichever rows are picked."""
    model, (decoded, source) = built(config), answer(config)
    rows = torch.tensor([2, 0, 0, 1])
    state, seen = model.decoder.start(source).select(rows), model.decoder.for_search(source, 2).select(rows)
    for t, token in enumerate(INPUTS.tgt_in[rows].unbind(dim=1)):
        features, state, weights = model.decoder.step(token, state, seen)
        check_close(features, decoded.features[rows, t])
        check_close(weights, None if decoded.weights is None else decoded.weights[rows, t])


@every_model
@pytest.mark.parametrize("rows", [[0, 0, 1, 1, 2, 2], [0, 2, 2, 2]])
@torch.no_grad()
def test_hypotheses_share_their_sentence(config: ModelConfig, rows: list[int]) -> None:
    """Alike many of each sentence, and one that has none left: each goes on as on a copy of its sentence."""
    model, (_, source) = built(config), answer(config)
    which, tokens = torch.tensor(rows), torch.arange(4, 4 + NUM_STEPS * len(rows)).view(NUM_STEPS, -1) % 15 + 4
    copies, seen = source.select(which), model.decoder.for_hypotheses(model.decoder.for_search(source, 2), which)
    output, state = model.decoder.output, model.decoder.start(copies)
    alone = state
    for token in tokens:  # other words for each
        features, state, weights = model.decoder.step(token, state, seen)
        expected, alone, alone_weights = model.decoder.step(token, alone, copies)
        check_close(features, expected)
        check_close(weights, alone_weights)
        check_close(output.log_probs(features, weights, seen), output.log_probs(expected, alone_weights, copies))


@every_model
@torch.no_grad()
def test_shapes_are_those_of_the_legend(config: ModelConfig) -> None:
    model, (decoded, source) = built(config), answer(config)
    width = ENCODER * ENCODERS[config.encoder.kind].width_multiple
    assert source.memory.shape == (NUM_ROWS, NUM_POSITIONS, width)
    assert source.summary.shape == (NUM_ROWS, width)
    assert decoded.features.shape == (NUM_ROWS, NUM_STEPS, model.decoder.feature_width)
    assert decoded.weights is None or decoded.weights.shape == (NUM_ROWS, NUM_STEPS, NUM_POSITIONS)
    log_probs = output(model, decoded, source)
    assert log_probs.shape == (NUM_ROWS, NUM_STEPS, model.decoder.embed.table.num_embeddings)
    check_close(log_probs.exp().sum(dim=-1), torch.ones(NUM_ROWS, NUM_STEPS, dtype=torch.float64))


@every_model
@torch.no_grad()
def test_a_batch_gives_what_each_sentence_gives_alone(config: ModelConfig) -> None:
    model, (together, source) = built(config), answer(config)
    log_probs = output(model, together, source)
    for row, length in enumerate(INPUTS.src_lengths.tolist()):
        alone, own = run(model, INPUTS.alone(row))
        check_close(together.features[row], alone.features[0])
        check_close(source.memory[row, :length], own.memory[0])
        check_close(source.summary[row], own.summary[0])
        check_close(log_probs[row], output(model, alone, own)[0])
        if together.weights is not None and alone.weights is not None:
            check_close(together.weights[row, :, :length], alone.weights[0])


@every_model
@torch.no_grad()
def test_padding_changes_no_number_and_gets_no_weight(config: ModelConfig) -> None:
    """Neither more of it nor what stands there."""
    model, (plain, source) = built(config), answer(config)
    padded, longer = run(model, make_inputs(more_src=2, more_tgt=2, filler=11))
    check_close(padded.features[:, :NUM_STEPS], plain.features)
    check_close(longer.summary, source.summary)
    check_close(longer.memory[:, :NUM_POSITIONS], source.memory)
    assert not longer.memory[~longer.valid].any()
    check_close(output(model, padded, longer)[:, :NUM_STEPS], output(model, plain, source))
    if padded.weights is not None:
        check_close(padded.weights[:, :NUM_STEPS, :NUM_POSITIONS], plain.weights)
        assert not padded.weights.transpose(1, 2)[~longer.valid].any()


@every_model
def test_weights_are_shares_of_what_competes(config: ModelConfig) -> None:
    weights, attention = answer(config)[0].weights, config.attention
    if config.decoder.kind == "plain":
        assert weights is None
        return
    assert weights is not None
    assert (weights >= 0).all()
    sums, used = weights.sum(dim=-1), (weights > 0).sum(dim=-1)
    if attention.scope in ("local_p", "hybrid"):
        assert ((sums > 0) & (sums <= 1 + 1e-12)).all()
    else:
        check_close(sums, torch.ones_like(sums))
    if attention.scope == "local_m":
        centres = torch.minimum(torch.arange(NUM_STEPS), INPUTS.src_lengths.unsqueeze(1) - 1)  # (B, T)
        outside = (torch.arange(NUM_POSITIONS) - centres.unsqueeze(-1)).abs() > attention.window  # (B, T, S)
        assert not weights[outside].any()
    elif attention.scope == "local_p":  # a window for each head
        assert (used <= attention.heads * (2 * attention.window + 1)).all()
    if attention.selection.startswith("hard_") and not attention.per_feature:
        assert (used <= attention.heads).all()


@every_model
@torch.no_grad()
def test_a_source_of_nothing_but_padding_does_no_harm(config: ModelConfig) -> None:
    model, others = built(config), torch.tensor([0, 2])
    decoded, source = run(model, HOLLOW)
    assert all(tensor.isfinite().all() for tensor in (*tensors_in(decoded), *tensors_in(source)))
    assert output(model, decoded, source).isfinite().all()
    assert not source.memory[1].any()
    assert decoded.weights is None or not decoded.weights[1].any()
    without, _ = run(model, Inputs(*(tensor[others] for tensor in tensors_in(HOLLOW))))
    check_close(decoded.features[others], without.features)


@every_model
def test_training_moves_every_parameter(config: ModelConfig) -> None:
    """Steps in fp32, then in bf16, on a batch in which one source is empty."""
    model, tgt = build(config, torch.float32).train(), HOLLOW.tgt_in
    torch.manual_seed(3)
    moved: dict[bool, set[str]] = {False: set(), True: set()}
    for half in (False, True) * 3:  # by some draws a sparsemax is saturated at every step, and its score stands still
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            decoded, source = run(model, HOLLOW, progress=0.5)
            log_probs = output(model, decoded, source)
            features, state, _ = model.decoder.step(tgt[:, 0], model.decoder.start(source), source)
        assert log_probs.dtype == torch.float32
        assert decoded.weights is None or decoded.weights.dtype == torch.float32
        assert features.isfinite().all()
        terms = decoded.loss_terms
        assert {name: term.shape for name, term in terms.items()} == dict.fromkeys(state.loss_terms, tgt.shape)
        loss = -log_probs.gather(2, tgt.unsqueeze(-1)).mean() + sum(term.mean() for term in terms.values())
        assert loss.isfinite()
        model.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, f"{name} is not part of the model's function"
            assert parameter.grad.isfinite().all(), name
            if parameter.grad.any():
                moved[half].add(name)
            parameter.data -= 0.1 * parameter.grad
    for half in (False, True):
        idle = {name for name, _ in model.named_parameters()} - moved[half]
        if config.attention.score == "linear":  # the query's share cancels, but for roundings
            idle -= {"decoder.attention.score.query.weight"}
        # A summary of zeros leaves the bridge its bias alone.
        assert idle == ({"decoder.bridge.weight"} if config.encoder.summary == "zero" else set())


@every_model
@torch.no_grad()
def test_only_training_leaves_anything_to_chance(config: ModelConfig) -> None:
    expected, model = answer(config)[0], built(config)
    again = run(model, INPUTS)[0]
    assert torch.equal(again.features, expected.features)
    assert not again.loss_terms
    try:
        assert not torch.equal(run(model.train(), INPUTS)[0].features, expected.features)
    finally:
        model.eval()


@every_model
@torch.no_grad()
def test_selected_rows_go_on_as_they_would_have(config: ModelConfig) -> None:
    model, source = built(config), encode(built(config), INPUTS)
    _, state, _ = model.decoder.step(INPUTS.tgt_in[:, 0], model.decoder.start(source), source)

    def second_step(rows: Tensor) -> list[Tensor]:
        own = source.select(rows)
        features, after, weights = model.decoder.step(INPUTS.tgt_in[rows, 1], state.select(rows), own)
        return [
            features,
            *tensors_in(after),
            *tensors_in(weights),
            model.decoder.output.log_probs(features, weights, own),
        ]

    whole = second_step(torch.arange(NUM_ROWS))
    # A search may drop its last sentence and still take the step.
    for rows in ([2, 0, 2, 1, 1], []):
        chosen = torch.tensor(rows, dtype=torch.long)
        for found, expected in zip(second_step(chosen), whole, strict=True):
            check_close(found, expected[chosen])
