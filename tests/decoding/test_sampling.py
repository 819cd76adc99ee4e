"""Draws: the right distribution, the same whatever the batch, and inside their limits."""

from __future__ import annotations

import numpy as np
import torch

from tests.decoding.decoding_models import (
    check_against_forced,
    check_equal,
    encode,
    force_all,
    make_model,
    make_sources,
)
from translate.config import SearchConfig
from translate.decoding.constraints import Constraint, Constraints
from translate.decoding.greedy import greedy
from translate.decoding.sampling import draw, draw_keys, sample, uniform
from translate.text.tokenizer import BOS, PAD

LENGTHS = [4, 1, 6, 3, 5]


def test_numbers_are_uniform_and_all_different() -> None:
    keys = draw_keys(7, np.arange(200), np.zeros(200, dtype=np.int64))
    numbers = np.concatenate([uniform(keys, step) for step in range(1, 51)])
    assert len(set(numbers.tolist())) == len(numbers)
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert np.abs(counts - 1000).max() < 120  # four deviations
    grid = numbers.reshape(50, 200)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.04


def test_draws_follow_the_probabilities() -> None:
    log_probs = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]).log().expand(20000, -1)
    numbers = torch.from_numpy(uniform(draw_keys(1, np.arange(20000), np.zeros(20000, dtype=np.int64)), 1))

    def shares(**settings: float) -> list[float]:
        drawn = draw(log_probs, numbers, SearchConfig.model_validate(settings))
        return (torch.bincount(drawn, minlength=5) / 20000).tolist()

    np.testing.assert_allclose(shares(), [0.5, 0.2, 0.15, 0.1, 0.05], atol=0.015)
    np.testing.assert_allclose(shares(top_k=2), [5 / 7, 2 / 7, 0, 0, 0], atol=0.015)
    np.testing.assert_allclose(shares(top_p=0.6), [5 / 7, 2 / 7, 0, 0, 0], atol=0.015)
    np.testing.assert_allclose(shares(top_p=0.3), [1, 0, 0, 0, 0], atol=0)
    squared = np.array([0.25, 0.04, 0.0225, 0.01, 0.0025])
    np.testing.assert_allclose(shares(temperature=0.5), squared / squared.sum(), atol=0.015)
    np.testing.assert_allclose(shares(top_k=3, top_p=0.6), [5 / 7, 2 / 7, 0, 0, 0], atol=0.015)


def test_the_last_token_with_a_probability_is_the_last_drawn() -> None:
    log_probs = torch.tensor([[0.0, 0.0, -torch.inf]]).log_softmax(1)
    assert draw(log_probs, torch.tensor([1.0]), SearchConfig()).tolist() == [1]


def test_a_draw_depends_on_seed_line_and_step_alone() -> None:
    model, sources = make_model("bahdanau", ending=3.0), make_sources(LENGTHS)
    search = SearchConfig(temperature=1.5, length_extra=5)
    together = sample(model, encode(model, sources), search, range(1, 6), num_draws=3)
    for order in ([4, 0, 2, 1, 3], [2]):
        encoded = encode(model, [sources[i] for i in order], more_padding=1)
        again = sample(model, encoded, search, [i + 1 for i in order], num_draws=3)
        for i, found in zip(order, again, strict=True):
            for one, expected in zip(found, together[i], strict=True):
                check_equal(one, expected)
    fewer = sample(model, encode(model, sources), search, range(1, 6))
    assert [one.tokens for (one,) in fewer] == [some[0].tokens for some in together], "draw 1 of 1 is draw 1 of 3"
    other_seed = sample(model, encode(model, sources), search.model_copy(update={"seed": 2}), range(1, 6), 3)
    other_lines = sample(model, encode(model, sources), search, range(11, 16), 3)
    assert other_seed != together
    assert other_lines != together


def test_draws_are_true_to_forward_and_keep_the_rules() -> None:
    model, sources = make_model("luong", ending=3.0), make_sources(LENGTHS)
    encoded = encode(model, sources)
    search = SearchConfig(temperature=2.0, no_repeat_ngram=1, min_length=3, length_extra=5)
    constraints = Constraints(encoded, search, [(7,)], [Constraint(prefix=(5,))] * len(sources))
    for source, found in zip(sources, sample(model, encoded, search, range(5), 2, constraints), strict=True):
        for one in found:
            check_against_forced(model, source, one, search)
            assert one.tokens[0] == 5
            assert len(set(one.tokens)) == len(one.tokens)
            assert len(one.tokens) + 1 >= 3
            assert not {7, PAD, BOS} & set(one.tokens)


def test_steps_add_up() -> None:
    model, sources = make_model("bahdanau", ending=3.0), make_sources(LENGTHS)
    encoded = encode(model, sources)
    found = [some[0] for some in sample(model, encoded, SearchConfig(), range(5))]
    for source, one in [
        *zip(sources, found, strict=True),
        *zip(sources, greedy(model, encoded, SearchConfig()), strict=True),
    ]:
        log_probs = force_all(model, source, [one.tokens])[0][0]
        expected = [log_probs[t, token] for t, token in enumerate((*one.tokens, 3))]
        np.testing.assert_allclose(one.token_log_probs, expected, atol=1e-9)


def test_one_of_one_is_greedy() -> None:
    model, sources = make_model("bahdanau", ending=3.0), make_sources(LENGTHS)
    encoded = encode(model, sources)
    drawn = sample(model, encoded, SearchConfig(top_k=1), range(5))
    for (one,), expected in zip(drawn, greedy(model, encoded, SearchConfig()), strict=True):
        check_equal(one, expected)
