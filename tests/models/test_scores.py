"""Scores: each is its formula, alone, in heads and for every feature; gradients, slices and what some cannot do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models import readings
from tests.models.covering import in_tree
from tests.models.readings import parameters_of
from tests.models.small_models import check_close, make_inputs, make_model, run, sample, shake
from translate.kernels import additive
from translate.models.layers import masked_softmax
from translate.models.scores import SCORES, ElementwiseScore, General, Score, Sizes, split_heads

BATCH, TARGETS, SOURCES, QUERY, MEMORY, WIDTH, POSITIONS = 2, 3, 5, 4, 6, 8, 7
FEATURED = [name for name, score in SCORES.items() if "per_feature" in score.supports]
IN_TREE = in_tree("attention.score")
FEATURED_IN_TREE = [name for name in IN_TREE if name in FEATURED]


def make_score(name: str, heads: int = 1, per_feature: bool = False, positions: int = POSITIONS) -> Score:
    return shake(SCORES[name](Sizes(QUERY, MEMORY, WIDTH, heads, positions, per_feature)).double())


def compare(score: Score, query: Tensor, memory: Tensor) -> Tensor:
    """query (B, T, H), memory (B, S, D) -> scores (B, G, T, S)."""
    found: Tensor = score(query, split_heads(score.prepare(memory)[0], score.key_groups))
    return found


def inputs(batch: int = BATCH, targets: int = TARGETS, sources: int = SOURCES) -> tuple[Tensor, Tensor]:
    return sample(batch, targets, QUERY, seed=1), sample(batch, sources, MEMORY, seed=2)


def test_every_score_has_a_second_reading() -> None:
    assert set(readings.SCORES) == set(IN_TREE)
    assert set(readings.FEATURE_SCORES) == set(FEATURED_IN_TREE)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", IN_TREE)
def test_a_score_is_its_formula(name: str, heads: int) -> None:
    score, (query, memory) = make_score(name, heads), inputs()
    found = compare(score, query, memory).detach().numpy()
    assert found.shape == (BATCH, heads, TARGETS, SOURCES)
    p = parameters_of(score)
    for b, g, t, s in np.ndindex(found.shape):
        q, m = query[b, t].numpy(), memory[b, s].numpy()
        np.testing.assert_allclose(found[b, g, t, s], readings.head_score(name, p, q, m, s, g, heads), atol=1e-12)
        if heads == 1:
            np.testing.assert_allclose(found[b, 0, t, s], readings.SCORES[name](p, q, m, s), atol=1e-12)


@pytest.mark.parametrize("name", FEATURED_IN_TREE)
def test_a_score_for_every_feature_is_its_formula(name: str) -> None:
    score, (query, memory) = make_score(name, per_feature=True), inputs()
    found = compare(score, query, memory).detach().numpy()
    p = parameters_of(score)
    num_features = readings.values_of(name, p, memory[0].numpy()).shape[1]
    assert found.shape == (BATCH, num_features, TARGETS, SOURCES)
    for b, t, s in np.ndindex(BATCH, TARGETS, SOURCES):
        expected = readings.FEATURE_SCORES[name](p, query[b, t].numpy(), memory[b, s].numpy())
        np.testing.assert_allclose(found[b, :, t, s], expected, atol=1e-12)


@pytest.mark.parametrize("name", IN_TREE)
@torch.no_grad()
def test_values_are_the_memory_unless_the_score_has_its_own(name: str) -> None:
    score, (_, memory) = make_score(name), inputs()
    _, values = score.prepare(memory)
    expected = readings.values_of(name, parameters_of(score), memory.numpy())
    check_close(values, torch.from_numpy(expected))
    assert values.size(-1) == score.value_width


KINDS = [(name, heads, False) for name in SCORES for heads in (1, 2)] + [(name, 1, True) for name in FEATURED]


@pytest.mark.parametrize(("name", "heads", "per_feature"), KINDS)
def test_a_score_has_the_right_gradient(name: str, heads: int, per_feature: bool) -> None:
    score = make_score(name, heads, per_feature)
    query, memory = (tensor.requires_grad_() for tensor in inputs(1, 2, 3))
    parameters = list(score.parameters())
    assert parameters

    def both(query: Tensor, memory: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return compare(score, query, memory), score.prepare(memory)[1]

    assert torch.autograd.gradcheck(both, (query, memory, *parameters))


class SumOfUnits(General):
    """The same scores as `general`, by the way of a score that has no shorter one than to add up its units."""

    def total(self, queries: Tensor, keys: Tensor) -> Tensor:
        return ElementwiseScore.total(self, queries, keys)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_score_may_be_no_more_than_the_sum_of_its_units(heads: int) -> None:
    query, memory = inputs()
    by_units = shake(SumOfUnits(Sizes(QUERY, MEMORY, WIDTH, heads, POSITIONS, per_feature=False)).double())
    check_close(compare(by_units, query, memory), compare(make_score("general", heads), query, memory), 1e-12)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", ["additive", "dot", "cosine", "sum of units"])
def test_in_slices_is_at_once(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slices of the additive score without `per_feature` are in tests/kernels/test_additive.py."""
    if name == "sum of units":
        score: Score = shake(SumOfUnits(Sizes(QUERY, MEMORY, WIDTH, 1, POSITIONS, per_feature=False)).double())
    else:
        score = make_score(name, per_feature=True)
    assert isinstance(score, ElementwiseScore)
    compute, seen, per_row = score.units, list[int](), BATCH * SOURCES * score.key_width

    def spy(queries: Tensor, keys: Tensor) -> Tensor:
        seen.append(queries.size(2) * per_row)
        return compute(queries, keys)

    monkeypatch.setattr(score, "units", spy)

    def results() -> list[Tensor]:
        query, memory = (tensor.requires_grad_() for tensor in inputs())
        found = compare(score, query, memory)
        direction = sample(*found.shape, seed=5)
        return [found, *torch.autograd.grad((found * direction).sum(), [query, memory, *score.parameters()])]

    whole = results()
    assert seen == [TARGETS * per_row]
    seen.clear()
    monkeypatch.setattr(additive, "MAX_UNITS", (rows + 1) * per_row - 1)
    for found, expected in zip(results(), whole, strict=True):
        check_close(found, expected, 1e-12)
    assert max(seen) == rows * per_row
    assert len(seen) == 2 * -(-TARGETS // rows), "each slice is computed once, and once more in the backward pass"


def test_location_gives_nothing_to_positions_beyond_the_longest() -> None:
    query, memory = inputs()
    short, known = make_score("location", positions=3), make_score("location", positions=SOURCES)
    valid = torch.ones(SOURCES, dtype=torch.bool)
    weights = masked_softmax(compare(short, query, memory), valid)
    assert not weights[..., 3:].any()
    assert (weights[..., :3] > 0).all()
    check_close(weights[..., :3], masked_softmax(compare(short, query, memory[:, :3]), valid[:3]))
    assert (masked_softmax(compare(known, query, memory), valid) > 0).all()


@pytest.mark.parametrize("selection", ["soft", "sparsemax", "hard_gumbel", "hard_reinforce"])
@torch.no_grad()
def test_a_source_longer_than_any_of_training_is_read_by_its_known_positions(selection: str) -> None:
    model = make_model(attention__score="location", attention__selection=selection)
    decoded, _ = run(model, make_inputs(lengths=(15, 2)))
    assert decoded.weights is not None
    assert not decoded.weights[:, :, 13:].any()  # data.max_length and the end symbol
    check_close(decoded.weights.sum(dim=-1), torch.ones(2, 4, dtype=torch.float64))
    assert decoded.features.isfinite().all()


def test_linear_cannot_use_its_query() -> None:
    """Its share is the same for all positions and cancels."""
    score, (query, memory) = make_score("linear"), inputs()
    valid = torch.ones(SOURCES, dtype=torch.bool)
    scores = compare(score, query, memory)
    assert not torch.allclose(scores, compare(score, 3 * query, memory))
    check_close(masked_softmax(scores, valid), masked_softmax(compare(score, 3 * query, memory), valid))


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
@torch.no_grad()
def test_static_attends_alike_at_every_step(decoder: str) -> None:
    weights = run(make_model(attention__score="static", decoder__kind=decoder), make_inputs())[0].weights
    assert weights is not None
    check_close(weights, weights[:, :1].expand_as(weights))
    moving = run(make_model(decoder__kind=decoder), make_inputs())[0].weights
    assert moving is not None
    assert not torch.allclose(moving, moving[:, :1].expand_as(moving))
