"""Scopes, and attention as a whole: heads, hops, features and coverage, each against a plain reading of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models import readings
from tests.models.covering import in_tree
from tests.models.readings import parameters_of
from tests.models.small_models import check_close, make_inputs, make_model, run, sample, shake, without_dropout
from translate.config import AttentionConfig
from translate.models.attention import Attention, AttentionResult
from translate.models.layers import masked_softmax
from translate.models.scopes import SCOPES, Predicted, Scope, ScopeInputs
from translate.models.scores import SCORES
from translate.models.selections import SELECTIONS, Soft
from translate.models.state import EncodedSource, SourceCache

BATCH, STEPS, POSITIONS, QUERY, MEMORY, WIDTH, LONGEST = 3, 4, 7, 6, 8, 10, 9
LENGTHS = torch.tensor([7, 1, 5])
VALID = torch.arange(POSITIONS) < LENGTHS.unsqueeze(1)
FIRST = 2  # the number of the first step
STEP_NUMBERS = torch.arange(FIRST, FIRST + STEPS).expand(BATCH, STEPS)


def make_config(**settings: Any) -> AttentionConfig:
    return AttentionConfig.model_validate({"width": WIDTH, "window": 2, **settings})


def make_attention(**settings: Any) -> Attention:
    return shake(Attention(make_config(**settings), QUERY, MEMORY, LONGEST).double().eval())


def make_source(attention: Attention, memory: Tensor | None = None, progress: float = 1.0) -> EncodedSource:
    memory = sample(BATCH, POSITIONS, MEMORY, seed=1) if memory is None else memory
    memory = memory * VALID[: len(memory)].unsqueeze(-1)
    tokens = torch.zeros(memory.shape[:2], dtype=torch.long)
    cache = attention.prepare(memory, VALID[: len(memory)])
    return EncodedSource(tokens, memory, VALID[: len(memory)], cache, memory[:, 0], progress)


def make_query() -> Tensor:
    return sample(BATCH, STEPS, QUERY, seed=2)


def attend(attention: Attention, query: Tensor | None = None, coverage: Tensor | None = None) -> AttentionResult:
    query = make_query() if query is None else query
    found = attention(query, STEP_NUMBERS[: len(query), : query.size(1)], make_source(attention), coverage)
    assert isinstance(found, AttentionResult)
    return found


# -- scopes ------------------------------------------------------------------------------------------------------------


def make_scope(name: str, window: int, heads: int = 1) -> Scope:
    return shake(SCOPES[name](make_config(window=window, heads=heads), QUERY).double(), scale=1.5)


def test_every_scope_has_a_second_reading() -> None:
    assert set(readings.SCOPES) == set(in_tree("attention.scope"))


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", in_tree("attention.scope"))
@torch.no_grad()
def test_a_scope_is_its_formula(name: str, heads: int, window: int) -> None:
    scope, query = make_scope(name, window, heads), make_query()
    scores = sample(BATCH, heads, STEPS, POSITIONS, seed=3)
    for selection in ("soft", "sparsemax", *(() if scope.blends else ("hard_gumbel",))):
        choose = SELECTIONS[selection](make_config(), QUERY).double().eval()
        found = scope(
            scores, ScopeInputs(query, STEP_NUMBERS, VALID), lambda s, v, choose=choose: choose(s, v, 1.0)
        ).numpy()
        assert found.shape == (BATCH, heads, STEPS, POSITIONS)
        p = parameters_of(scope)
        for b, g, t in np.ndindex(BATCH, heads, STEPS):
            n = int(LENGTHS[b])
            expected = readings.SCOPES[name](
                p, scores[b, g, t, :n].numpy(), query[b, t].numpy(), FIRST + t, window, g,
                readings.SELECTIONS[selection],
            )  # fmt: skip
            np.testing.assert_allclose(found[b, g, t, :n], expected, atol=1e-12)
            assert not found[b, g, t, n:].any()


@pytest.mark.parametrize("name", ["local_m", "local_p"])
def test_a_window_shuts_out_the_best_score(name: str) -> None:
    """And what competes shares all there is, before local_p puts its bell over it."""
    scope, query = make_scope(name, window=1), make_query()
    scores = torch.zeros(BATCH, 1, STEPS, POSITIONS, dtype=torch.float64)
    scores[..., 0], scores[..., 6] = 100.0, 100.0
    competing = []

    def select(scores: Tensor, valid: Tensor) -> Tensor:
        competing.append(valid.expand_as(scores))
        return masked_softmax(scores, valid)

    weights = scope(scores, ScopeInputs(query, STEP_NUMBERS, VALID), select)
    assert not weights[~competing[0]].any()
    assert (competing[0].sum(dim=-1) <= 3).all()
    assert competing[0].any(dim=-1).all()


@pytest.mark.parametrize("name", SCOPES)
def test_a_scope_has_the_right_gradient(name: str) -> None:
    scope, scores = make_scope(name, 2), sample(2, 1, 2, POSITIONS, seed=3).requires_grad_()
    query, soft = sample(2, 2, QUERY, seed=2).requires_grad_(), Soft(make_config(), QUERY)

    def weigh(scores: Tensor, query: Tensor, *_: Tensor) -> Tensor:
        return scope(scores, ScopeInputs(query, STEP_NUMBERS[:2, :2], VALID[[0, 2]]), lambda s, v: soft(s, v, 1.0))

    assert torch.autograd.gradcheck(weigh, (scores, query, *scope.parameters()))


def test_half_precision_still_counts_positions() -> None:
    """bfloat16 has 8 bits and takes position 301 for 302: a window counted in it would have other edges."""
    scope, valid = make_scope("local_p", window=1).float(), torch.ones(1, 600, dtype=torch.bool)
    assert isinstance(scope, Predicted)
    scores, soft = torch.zeros(1, 1, STEPS, 600), Soft(make_config(), QUERY)
    inputs = ScopeInputs(make_query()[:1].float(), STEP_NUMBERS[:1], valid)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights, centres = scope(scores, inputs, lambda s, v: soft(s, v, 1.0)), scope.centre(inputs)
    assert (centres > 257).any()
    for used, centre in zip(weights.flatten(0, 2), centres.flatten().tolist(), strict=True):
        assert used.nonzero().flatten().tolist() == [s for s in range(600) if abs(s - centre) <= 1]


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", in_tree("attention.score"))
@torch.no_grad()
def test_heads_are_smaller_attentions_side_by_side(name: str, heads: int) -> None:
    """Each scores, weighs and sums its share of the memory; one product puts them together; one head is no heads."""
    attention, query, memory = make_attention(score=name, heads=heads), make_query(), sample(BATCH, 7, MEMORY, seed=1)
    found = attend(attention, query)
    p = parameters_of(attention.score)
    assert (attention.out is None) == (heads == 1)
    for b, t in np.ndindex(BATCH, STEPS):
        m, q, n = memory[b].numpy(), query[b, t].numpy(), int(LENGTHS[b])
        values = readings.values_of(name, p, m)
        contexts, mean = [], np.zeros(n)
        for g in range(heads):
            scores = np.array([readings.head_score(name, p, q, m[s], s, g, heads) for s in range(n)])
            weights = readings.softmax(scores)
            contexts.append(weights @ np.split(values, heads, axis=1)[g][:n])
            mean += weights / heads
        context = np.concatenate(contexts)
        if attention.out is not None:
            context = attention.out.weight.numpy() @ context
        np.testing.assert_allclose(found.context[b, t].numpy(), context, atol=1e-12)
        np.testing.assert_allclose(found.weights[b, t, :n].numpy(), mean, atol=1e-12)


@pytest.mark.parametrize("name", readings.FEATURE_SCORES)
@torch.no_grad()
def test_every_feature_has_weights_of_its_own(name: str) -> None:
    attention, query, memory = (
        make_attention(score=name, per_feature=True),
        make_query(),
        sample(BATCH, 7, MEMORY, seed=1),
    )
    found = attend(attention, query)
    p = parameters_of(attention.score)
    for b, t in np.ndindex(BATCH, STEPS):
        m, q, n = memory[b].numpy(), query[b, t].numpy(), int(LENGTHS[b])
        values = readings.values_of(name, p, m)
        scores = np.array([readings.FEATURE_SCORES[name](p, q, m[s]) for s in range(n)])  # (n, C)
        weights = [readings.softmax(scores[:, c]) for c in range(values.shape[1])]
        context = [weights[c] @ values[:n, c] for c in range(values.shape[1])]
        np.testing.assert_allclose(found.context[b, t].numpy(), context, atol=1e-12)
        np.testing.assert_allclose(found.weights[b, t, :n].numpy(), np.mean(weights, axis=0), atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{}, {"heads": 2}, {"per_feature": True}, {"scope": "local_p"}, {"heads": 2, "selection": "hard_reinforce"}],
    ids=str,
)
@pytest.mark.parametrize("hops", [2, 3])
@torch.no_grad()
def test_hops_are_attentions_one_after_the_other(hops: int, settings: dict[str, Any]) -> None:
    """What each of them leaves for the loss is added up."""
    attention, single = make_attention(hops=hops, **settings).train(), make_attention(**settings).train()
    own = {key: value for key, value in attention.state_dict().items() if not key.startswith("hops.")}
    single.load_state_dict(own)
    query = make_query()
    torch.manual_seed(5)
    results = [attend(single, query)]
    for hop in range(hops - 1):
        weight, bias = attention.get_parameter(f"hops.{hop}.weight"), attention.get_parameter(f"hops.{hop}.bias")
        query = torch.tanh(torch.cat([query, results[-1].context], dim=-1) @ weight.T + bias)
        results.append(attend(single, query))
    torch.manual_seed(5)
    found = attend(attention)
    check_close(found.context, results[-1].context)
    check_close(found.weights, results[-1].weights)
    assert not torch.allclose(found.weights, results[0].weights)
    assert set(found.loss_terms) == ({"choice", "entropy", "baseline"} if "selection" in settings else set())
    for name, term in found.loss_terms.items():
        check_close(term, torch.stack([one.loss_terms[name] for one in results]).sum(dim=0))


@pytest.mark.parametrize(
    "settings", [{}, {"heads": 2}, {"per_feature": True}, {"hops": 2}, {"coverage": True}, {"selection": "sparsemax"}],
    ids=str,
)  # fmt: skip
def test_attention_has_the_right_gradient(settings: dict[str, Any]) -> None:
    attention = make_attention(score="additive", **settings)
    memory, query = sample(2, POSITIONS, MEMORY, seed=1), sample(2, 2, QUERY, seed=2)
    coverage = sample(2, POSITIONS, seed=4).abs()

    def found(memory: Tensor, query: Tensor, coverage: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        source = make_source(attention, memory)
        one = attention(query, STEP_NUMBERS[:2, :2], source, coverage if attention.covered is not None else None)
        return one.context, one.weights

    leaves = (memory.requires_grad_(), query.requires_grad_(), coverage.requires_grad_(attention.covered is not None))
    # One random direction in and one out: all the parameters at once would take seconds.
    assert torch.autograd.gradcheck(found, (*leaves, *attention.parameters()), fast_mode=True)


@torch.no_grad()
def test_all_queries_at_once_are_one_after_the_other() -> None:
    """For every scope, so that a step's number goes with its query."""
    for scope in SCOPES:
        attention, query = make_attention(scope=scope, heads=2), make_query()
        whole, source = attend(attention, query), make_source(attention)
        for t in range(STEPS):
            one = attention(query[:, t : t + 1], STEP_NUMBERS[:, t : t + 1], source)
            check_close(one.context, whole.context[:, t : t + 1])
            check_close(one.weights, whole.weights[:, t : t + 1])


# -- coverage ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_coverage_is_a_term_of_the_additive_score() -> None:
    """See et al. 2017, eq. 11: vᵀ tanh(W q + U m + w c)."""
    attention, query = make_attention(coverage=True), make_query()
    coverage, memory = sample(BATCH, POSITIONS, seed=4).abs(), sample(BATCH, POSITIONS, MEMORY, seed=1)
    found = attend(attention, query, coverage).weights
    p = parameters_of(attention)
    for b, t in np.ndindex(BATCH, STEPS):
        n = int(LENGTHS[b])
        scores = [
            p["score.v"][0]
            @ np.tanh(
                p["score.query.weight"] @ query[b, t].numpy()
                + p["score.memory.weight"] @ memory[b, s].numpy()
                + p["score.memory.bias"]
                + p["covered"][0] * coverage[b, s].item()
            )
            for s in range(n)
        ]
        np.testing.assert_allclose(found[b, t, :n].numpy(), readings.softmax(np.array(scores)), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, settings) for name in SCORES for settings in ({}, {"heads": 2})]
    + [(name, {"per_feature": True}) for name in readings.FEATURE_SCORES],
    ids=str,
)
@torch.no_grad()
def test_coverage_changes_the_keys_of_every_score(name: str, settings: dict[str, Any]) -> None:
    """k_ts = k_s + w · c_s, in which each head has its share of w."""
    covering, plain = make_attention(score=name, coverage=True, **settings), make_attention(score=name, **settings)
    plain.load_state_dict({key: value for key, value in covering.state_dict().items() if key != "covered"})
    coverage, query = sample(BATCH, POSITIONS, seed=4).abs(), make_query()
    source = make_source(plain)
    assert source.cache is not None
    assert covering.covered is not None
    shares = covering.covered[0].chunk(source.cache.keys.size(1))  # G × (A / G)
    keys = torch.stack(
        [source.cache.keys[:, g] + coverage.unsqueeze(-1) * share for g, share in enumerate(shares)], dim=1
    )
    changed = EncodedSource(
        source.tokens, source.memory, source.valid, SourceCache(keys, source.cache.values), source.summary
    )
    found, expected = attend(covering, query, coverage), plain(query, STEP_NUMBERS, changed)
    check_close(found.weights, expected.weights)
    check_close(found.context, expected.context)
    assert not torch.allclose(found.weights, attend(plain, query).weights)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("feeding", [True, False])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_attending_again_is_a_loss_term_and_is_kept(decoder: str, feeding: bool, heads: int) -> None:
    """The term of step t is Σ_s min(α_ts, Σ_{t' < t} α_t's) (See et al. 2017, eq. 12), here by a plain loop."""
    model = make_model(
        attention__coverage=True, attention__heads=heads, decoder__kind=decoder, decoder__input_feeding=feeding
    )
    inputs = make_inputs()
    decoded, source = run(without_dropout(model).train(), inputs)
    assert decoded.weights is not None
    assert set(decoded.loss_terms) == {"coverage"}
    weights = decoded.weights.numpy(force=True)
    for b, t in np.ndindex(*inputs.tgt_in.shape):
        expected = sum(min(weights[b, t, s], weights[b, :t, s].sum()) for s in range(weights.shape[2]))
        np.testing.assert_allclose(decoded.loss_terms["coverage"][b, t].item(), expected, atol=1e-12)
    state = model.decoder.start(source)
    for t, token in enumerate(inputs.tgt_in.unbind(dim=1)):
        _, state, _ = model.decoder.step(token, state, source)
        check_close(state.loss_terms["coverage"], decoded.loss_terms["coverage"][:, t])
        check_close(state.coverage, decoded.weights[:, : t + 1].sum(dim=1))
        assert state.position.tolist() == [t + 1] * len(inputs.src)
