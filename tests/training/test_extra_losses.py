"""What is learnt besides the words, against plain loops; and the gradient of a hard choice against its expectation."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from translate.config import AttentionConfig
from translate.models.state import Decoded
from translate.training.extra_losses import RewardScale, extra_losses

ROWS, STEPS = 2, 3
VALID = torch.tensor([[True, True, True], [True, True, False]])


def decoded(**terms: Tensor) -> Decoded:
    return Decoded(torch.zeros(ROWS, STEPS, 1), None, terms)


def random_terms(*names: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(ROWS, STEPS, generator=generator, dtype=torch.float64) for name in names}


def test_coverage_counts_real_tokens_only() -> None:
    terms = random_terms("coverage")
    losses = extra_losses(
        decoded(**terms), torch.zeros(ROWS, STEPS), VALID, AttentionConfig(coverage_loss=0.7), RewardScale()
    )
    expected = sum(0.7 * float(terms["coverage"][b, t]) for b, t in product(range(ROWS), range(STEPS)) if VALID[b, t])
    assert losses.keys() == {"coverage"}
    assert float(losses["coverage"]) == pytest.approx(expected)


def test_a_term_of_a_plugin_counts_as_it_is() -> None:
    terms = random_terms("own", "coverage")
    losses = extra_losses(decoded(**terms), torch.zeros(ROWS, STEPS), VALID, AttentionConfig(), RewardScale())
    assert float(losses["own"]) == pytest.approx(float(terms["own"][VALID].sum()))


def test_a_choice_is_judged_by_what_follows_it() -> None:
    terms = random_terms("choice", "entropy", "baseline")
    gold = -torch.rand(ROWS, STEPS, dtype=torch.float64) * VALID
    scale = RewardScale(mean=-1.5, deviation=2.0, left=0.5, batches=3)
    losses = extra_losses(decoded(**terms), gold, VALID, AttentionConfig(entropy=0.3), scale)
    choice = baseline = entropy = 0.0
    for b, t in product(range(ROWS), range(STEPS)):
        if VALID[b, t]:
            reward = (float(gold[b, t:].sum()) - -1.5) / 2.0
            left = reward - float(terms["baseline"][b, t])
            choice -= left / 0.5 * float(terms["choice"][b, t])
            baseline += left**2 / 2
            entropy -= 0.3 * float(terms["entropy"][b, t])
    found = {name: float(loss) for name, loss in losses.items()}
    assert found == pytest.approx({"choice": choice, "baseline": baseline, "entropy": entropy})
    assert scale.batches == 4
    rewards = torch.tensor([float(gold[b, t:].sum()) for b, t in product(range(ROWS), range(STEPS)) if VALID[b, t]])
    assert scale.mean == pytest.approx(0.9 * -1.5 + 0.1 * float(rewards.mean()))


def test_the_reward_itself_carries_no_gradient_to_the_choice() -> None:
    terms = {name: term.requires_grad_() for name, term in random_terms("choice", "entropy", "baseline").items()}
    gold = -torch.rand(ROWS, STEPS, dtype=torch.float64) * VALID
    losses = extra_losses(decoded(**terms), gold, VALID, AttentionConfig(), RewardScale())
    by_choice = torch.autograd.grad(losses["choice"], list(terms.values()), materialize_grads=True, retain_graph=True)
    assert [bool(gradient.any()) for gradient in by_choice] == [True, False, False]
    by_baseline = torch.autograd.grad(losses["baseline"], list(terms.values()), materialize_grads=True)
    assert [bool(gradient.any()) for gradient in by_baseline] == [False, False, True]


def test_the_gradient_of_draws_is_that_of_the_expected_reward() -> None:
    """One step, three places: averaged over all draws by their probability, the estimate is the exact derivative."""
    scores = torch.tensor([0.3, -0.8, 0.5], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([-2.0, -0.5, -1.0], dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.bool)
    exact = torch.autograd.grad(-(scores.softmax(dim=0) * rewards).sum(), scores)[0]
    estimate = torch.zeros_like(exact)
    for place, probability in enumerate(scores.detach().softmax(dim=0)):
        terms = {
            "choice": scores.log_softmax(dim=0)[place].view(1, 1),
            "entropy": torch.zeros(1, 1),
            "baseline": torch.full((1, 1), 0.4, dtype=torch.float64),
        }
        scale = RewardScale(mean=-3.0, deviation=1.0, left=1.0, batches=1)
        losses = extra_losses(decoded(**terms), rewards[place].view(1, 1), one, AttentionConfig(), scale)
        estimate += probability * torch.autograd.grad(losses["choice"], scores)[0]
    torch.testing.assert_close(estimate, exact)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_what_is_no_number_does_not_stay_in_the_scale(value: float) -> None:
    scale = RewardScale(mean=-1.0, deviation=2.0, left=3.0, batches=5)
    extra_losses(
        decoded(**random_terms("choice", "entropy", "baseline")),
        torch.full((ROWS, STEPS), value),
        VALID,
        AttentionConfig(),
        scale,
    )
    assert scale == RewardScale(mean=-1.0, deviation=2.0, left=3.0, batches=5)


def test_a_shard_without_tokens_leaves_the_scale_alone() -> None:
    scale = RewardScale(batches=1)
    terms = random_terms("choice", "entropy", "baseline")
    losses = extra_losses(decoded(**terms), torch.zeros(ROWS, STEPS), torch.zeros_like(VALID), AttentionConfig(), scale)
    assert all(float(loss) == 0.0 for loss in losses.values())
    assert scale == RewardScale(batches=1)
