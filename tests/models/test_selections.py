"""Selections: how scores become weights, and what a draw leaves for the loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models import readings
from tests.models.covering import in_tree
from tests.models.small_models import check_close, make_inputs, make_model, run, sample, shake, without_dropout
from translate.config import AttentionConfig
from translate.models.layers import masked_softmax
from translate.models.selections import SELECTIONS, HardReinforce, Selection

BATCH, GROUPS, STEPS, POSITIONS, QUERY = 3, 2, 4, 5, 6
MASK = torch.tensor(
    [[True, True, False, True, True], [False, False, False, True, False], [True, True, True, True, True]]
)
COMPETING = MASK[:, None, None]  # (B, 1, 1, S)
HARD = ("hard_gumbel", "hard_reinforce")


def make_selection(name: str, **settings: float) -> Selection:
    config = AttentionConfig.model_validate({"selection": name, **settings})
    return shake(SELECTIONS[name](config, QUERY).double())


def make_scores(scale: float = 1.0) -> Tensor:
    return scale * sample(BATCH, GROUPS, STEPS, POSITIONS, seed=3)


# -- the masked softmax ------------------------------------------------------------------------------------------------

HOLES = torch.tensor([[True, True, False, True], [False, False, False, True], [False, False, False, False]])


def test_masked_softmax_is_softmax_of_what_is_real() -> None:
    scores = sample(3, 4) * 30
    weights = masked_softmax(scores, HOLES)
    for row in range(2):
        np.testing.assert_allclose(weights[row, HOLES[row]], readings.softmax(scores[row, HOLES[row]].numpy()))
    assert not weights[~HOLES].any()


def test_masked_softmax_has_the_right_gradient() -> None:
    assert torch.autograd.gradcheck(lambda scores: masked_softmax(scores, HOLES), sample(3, 4).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_masked_softmax_is_in_float32_and_finite(dtype: torch.dtype) -> None:
    """What stands at padding may be anything at all, and so may the size of the scores."""
    scores = torch.full((3, 4), 6e4, dtype=dtype)
    scores[~HOLES] = float("nan")
    scores[0, 0] = -6e4
    scores.requires_grad_()
    weights = masked_softmax(scores, HOLES)
    assert weights.dtype == torch.float32
    assert weights.isfinite().all()
    weights[:, 0].sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


# -- all selections ----------------------------------------------------------------------------------------------------


def test_every_selection_has_a_second_reading() -> None:
    assert set(readings.SELECTIONS) == set(in_tree("attention.selection"))


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("name", in_tree("attention.selection"))
def test_a_selection_is_its_formula(name: str, scale: float) -> None:
    scores = make_scores(scale)
    weights = make_selection(name).eval()(scores, COMPETING, 0.5).numpy(force=True)
    for b, g, t in np.ndindex(BATCH, GROUPS, STEPS):
        real = MASK[b].numpy()
        expected = readings.SELECTIONS[name](scores[b, g, t].numpy()[real])
        np.testing.assert_allclose(weights[b, g, t, real], expected, atol=1e-12)
        assert not weights[b, g, t, ~real].any()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", SELECTIONS)
def test_where_nothing_competes_nothing_gets_a_share(name: str, training: bool) -> None:
    """And what stands where nothing competes may be of any size."""
    valid = torch.tensor([[False, False, False], [False, True, True]])
    scores = torch.tensor([[1e30, -1e30, 0.0], [3e38, 0.0, 0.5]]).view(2, 1, 1, 3).requires_grad_()
    selection = make_selection(name).float().train(training)
    weights = selection(scores, valid[:, None, None], 0.0)
    assert not weights[~valid[:, None, None]].any()
    check_close(weights[1].sum(), torch.tensor(1.0), 1e-6)
    if weights.requires_grad:
        (weights**2).sum().backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", SELECTIONS)
def test_scores_that_are_not_numbers_stop_nothing(name: str) -> None:
    """An overflow in half precision makes the loss NaN, and the update is left out; it is no reason to end a run."""
    for bad in (float("nan"), float("inf")):
        scores = torch.zeros(1, 1, 2, 3)
        scores[0, 0, 0] = bad
        weights = make_selection(name).float().train()(scores, torch.ones(1, 1, 1, 3, dtype=torch.bool), 0.0)
        assert weights.shape == scores.shape
        check_close(weights[0, 0, 1].sum(), torch.tensor(1.0), 1e-6)


@pytest.mark.parametrize("name", ["soft", "sparsemax"])
def test_a_selection_has_the_right_gradient(name: str) -> None:
    selection, scores = make_selection(name), make_scores()[:, :, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: selection(scores, COMPETING, 0.5), scores)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_are_in_float32(name: str, dtype: torch.dtype) -> None:
    weights = make_selection(name).float().train()(make_scores().to(dtype), COMPETING, 0.5)
    assert weights.dtype == torch.float32


def test_sparsemax_gives_exact_zeros_and_forgets_no_size() -> None:
    scores = torch.tensor([[1000.0, 999.5, 0.0, -1000.0]]).view(1, 1, 1, 4)
    weights = make_selection("sparsemax")(scores, torch.ones(1, 1, 1, 4, dtype=torch.bool), 0.0)
    assert weights.flatten().tolist() == [0.75, 0.25, 0.0, 0.0]


# -- hard selections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("progress", [0.0, 1.0])
@pytest.mark.parametrize("name", HARD)
def test_draws_are_as_frequent_as_the_softmax_says(name: str, progress: float) -> None:
    """A chi-square test with three degrees of freedom: by chance one in a thousand exceeds 16.27."""
    num_draws, row = 4000, torch.tensor([0.3, -0.9, 5.0, 1.1, 0.0], dtype=torch.float64)
    torch.manual_seed(5)
    draws = make_selection(name).train()(row.expand(1, 1, num_draws, 5), COMPETING[:1], progress).detach()
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    assert (draws.sum(dim=-1) == 1).all()
    counts = draws.sum(dim=(0, 1, 2)).numpy()
    assert counts[2] == 0  # the likeliest by far, but it does not compete
    real = MASK[0].numpy()
    expected = num_draws * readings.softmax(row.numpy()[real])
    assert ((counts[real] - expected) ** 2 / expected).sum() < 16.27


@pytest.mark.parametrize("name", HARD)
def test_each_step_and_group_has_its_own_draw(name: str) -> None:
    torch.manual_seed(5)
    draws = make_selection(name).train()(torch.zeros(2, 2, 30, 5), torch.ones(2, 1, 1, 5, dtype=torch.bool), 0.5)
    chosen = draws.argmax(dim=-1).flatten(0, 1)  # (B · G, T)
    assert len({tuple(row) for row in chosen.tolist()}) == 4
    assert all(len(set(row)) == 5 for row in chosen.tolist())


@pytest.mark.parametrize(("progress", "temperature"), [(0.0, 2.0), (0.5, 1.0), (1.0, 0.5), (1.7, 0.5)])
def test_hard_gumbel_has_the_gradient_of_a_softmax_that_cools_geometrically(
    progress: float, temperature: float
) -> None:
    selection = make_selection("hard_gumbel", temperature=2.0, temperature_end=0.5).train()
    scores, direction = make_scores().requires_grad_(), sample(BATCH, GROUPS, STEPS, POSITIONS, seed=4)
    torch.manual_seed(6)
    hard = selection(scores, COMPETING, progress)
    (found,) = torch.autograd.grad((hard * direction).sum(), scores)
    torch.manual_seed(6)
    noise = -torch.log(-torch.log(torch.rand(scores.shape, dtype=torch.float64)))
    noisy = (scores + noise).masked_fill(~COMPETING, -math.inf)
    (expected,) = torch.autograd.grad((torch.softmax(noisy / temperature, dim=-1) * direction).sum(), scores)
    check_close(found, expected)
    assert torch.equal(hard.argmax(dim=-1), noisy.argmax(dim=-1))


def test_hard_reinforce_leaves_terms_of_what_was_drawn() -> None:
    selection, scores = make_selection("hard_reinforce").train(), make_scores().requires_grad_()
    query = sample(BATCH, STEPS, QUERY, seed=7).requires_grad_()
    weights = selection(scores, COMPETING, 0.5)
    assert not weights.requires_grad
    terms = selection.loss_terms(scores, COMPETING, weights, query)
    assert {name: term.shape for name, term in terms.items()} == dict.fromkeys(
        ("choice", "entropy", "baseline"), (BATCH, STEPS)
    )
    assert isinstance(selection, HardReinforce)
    weight, bias = selection.baseline.weight[0].detach().numpy(), selection.baseline.bias.item()
    for b, t in np.ndindex(BATCH, STEPS):
        choice, entropy = 0.0, 0.0
        for g in range(GROUPS):
            p = readings.softmax(scores[b, g, t].numpy(force=True)[MASK[b].numpy()])
            choice += np.log(p[weights[b, g, t, MASK[b]].argmax()])
            entropy -= (p * np.log(p)).sum()
        np.testing.assert_allclose(terms["choice"][b, t].item(), choice, atol=1e-12)
        np.testing.assert_allclose(terms["entropy"][b, t].item(), entropy, atol=1e-12)
        np.testing.assert_allclose(terms["baseline"][b, t].item(), weight @ query[b, t].numpy(force=True) + bias)


def test_hard_reinforce_has_the_right_gradients() -> None:
    """Those of the log probability and of the entropy; the baseline learns and leaves its query alone."""
    selection, scores = make_selection("hard_reinforce").train(), make_scores().requires_grad_()
    query = sample(BATCH, STEPS, QUERY, seed=7).requires_grad_()
    weights = selection(scores, COMPETING, 0.5)

    def terms_of(scores: Tensor) -> tuple[Tensor, Tensor]:
        terms = selection.loss_terms(scores, COMPETING, weights, query)
        return terms["choice"], terms["entropy"]

    assert torch.autograd.gradcheck(terms_of, scores)
    baseline = selection.loss_terms(scores, COMPETING, weights, query)["baseline"]
    leaves = [query, scores, *selection.parameters()]
    found = torch.autograd.grad(baseline.sum(), leaves, allow_unused=True)
    assert found[0] is None
    assert found[1] is None
    assert all(gradient is not None and gradient.any() for gradient in found[2:])


@pytest.mark.parametrize(("heads", "hops"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
def test_loss_terms_are_of_the_right_size(decoder: str, heads: int, hops: int) -> None:
    """A sentence of one position leaves no choice; elsewhere each query of each head adds at most log n of entropy."""
    model = make_model(
        attention__selection="hard_reinforce", attention__heads=heads, attention__hops=hops, decoder__kind=decoder,
        decoder__input_feeding=False,
    )  # fmt: skip
    torch.manual_seed(1)
    inputs = make_inputs()
    terms = run(without_dropout(model).train(), inputs)[0].loss_terms
    assert set(terms) == {"choice", "entropy", "baseline"}
    check_close(terms["choice"][1], torch.zeros(4, dtype=torch.float64))
    check_close(terms["entropy"][1], torch.zeros(4, dtype=torch.float64))
    most = heads * hops * inputs.src_lengths.double().log()
    assert (terms["entropy"] <= most.unsqueeze(1) + 1e-12).all()
    assert (terms["entropy"][[0, 2]] > 0).all()
    assert (terms["choice"][[0, 2]] < 0).all()


@pytest.mark.parametrize("name", HARD)
def test_the_words_reach_a_hard_choice_only_through_what_they_may(name: str) -> None:
    """hard_gumbel learns its score from the words; hard_reinforce from its loss terms alone."""
    model = without_dropout(make_model(attention__selection=name)).train()
    decoded, _ = run(model, make_inputs())
    assert model.decoder.attention is not None
    parameters = list(model.decoder.attention.score.parameters())
    from_words = torch.autograd.grad(decoded.features.sum(), parameters, allow_unused=True, retain_graph=True)
    assert all((gradient is not None) == (name == "hard_gumbel") for gradient in from_words)
    if name == "hard_reinforce":
        from_terms = torch.autograd.grad(decoded.loss_terms["choice"].sum(), parameters)
        assert all(gradient.any() for gradient in from_terms)
