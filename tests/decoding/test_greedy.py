"""Greedy search against a plain loop, and the numbers that all searches share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.decoding.decoding_models import (
    DECODERS,
    check_against_forced,
    check_equal,
    count_rows,
    encode,
    force_all,
    make_model,
    make_sources,
)
from translate.config import SearchConfig, choices
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import NORMALIZATIONS, max_lengths, normalise
from translate.errors import NumericalError
from translate.models.seq2seq import Seq2Seq
from translate.text.tokenizer import BOS, EOS, PAD

LENGTHS = [4, 1, 6, 3, 5, 2, 7]
SEARCH = SearchConfig(length_ratio=1.5, length_extra=3)


def plain_loop(model: Seq2Seq, source: list[int], longest: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) + 1 < longest:
        log_probs = force_all(model, source, [tokens])[0][0, -1]
        log_probs[[PAD, BOS]] = -torch.inf
        likeliest = int(log_probs.argmax())
        if likeliest == EOS:
            break
        tokens = (*tokens, likeliest)
    return tokens


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_is_the_plain_loop(name: str) -> None:
    slack = []
    for seed in range(6):
        model, sources = make_model(name, seed=seed, ending=4.0), make_sources(LENGTHS, seed)
        for source, found in zip(sources, greedy(model, encode(model, sources), SEARCH), strict=True):
            longest = int(1.5 * (len(source) - 1) + 3)
            assert found.tokens == plain_loop(model, source, longest)
            check_against_forced(model, source, found, SEARCH)
            slack.append(longest - len(found.tokens) - 1)
    assert min(slack) == 0, "no translation was stopped by its maximal length: the test sees too little"
    assert len(set(slack)) > 3, "too few different lengths: the test sees too little"


@pytest.mark.parametrize("name", DECODERS)
def test_a_batch_gives_what_each_sentence_gives_alone(name: str) -> None:
    model, sources = make_model(name, ending=4.0), make_sources(LENGTHS)
    together = greedy(model, encode(model, sources, more_padding=3), SEARCH)
    for source, found in zip(sources, together, strict=True):
        check_equal(found, greedy(model, encode(model, [source]), SEARCH)[0])


def test_finished_sentences_leave_the_batch() -> None:
    model, sources = make_model("bahdanau", ending=6.0), make_sources(LENGTHS)
    encoded, rows = encode(model, sources), count_rows(model)
    found = greedy(model, encoded, SEARCH)
    assert rows[0] == len(LENGTHS)
    assert sum(rows) == sum(len(one.tokens) + 1 for one in found)


def test_padding_and_start_are_never_written() -> None:
    model, sources = make_model("luong"), make_sources(LENGTHS)
    with torch.no_grad():
        model.decoder.output.vocabulary.bias[[PAD, BOS]] += 100.0
    for source, found in zip(sources, greedy(model, encode(model, sources), SEARCH), strict=True):
        check_against_forced(model, source, found, SEARCH)


def test_search_refuses_a_model_in_training_mode() -> None:
    model = make_model("plain")
    encoded = encode(model, make_sources([3]))
    with pytest.raises(AssertionError, match="evaluation mode"):
        greedy(model.train(), encoded, SEARCH)


def test_weights_that_are_not_numbers_are_reported() -> None:
    model = make_model("bahdanau")
    with torch.no_grad():
        model.decoder.output.vocabulary.bias.fill_(torch.nan)
    with pytest.raises(NumericalError):
        greedy(model, encode(model, make_sources([3, 2])), SEARCH)


def test_every_normalization_of_the_configuration_exists() -> None:
    assert tuple(NORMALIZATIONS) == choices(SearchConfig, "normalization")


@pytest.mark.parametrize(
    ("normalization", "alpha", "expected"),
    [
        ("none", 0.6, [-6.0, -6.0]),
        ("average", 0.6, [-6.0, -6.0 / 7]),
        ("wu", 1.0, [-6.0, -3.0]),
        ("wu", 2.0, [-6.0, -1.5]),
    ],
)
def test_normalise(normalization: str, alpha: float, expected: list[float]) -> None:
    search = SearchConfig(normalization=normalization, alpha=alpha)
    log_probs = torch.tensor([-6.0, -6.0])
    np.testing.assert_allclose(normalise(log_probs, torch.tensor([1, 7]), search), expected)
    np.testing.assert_allclose(normalise(log_probs, 7, search), [expected[1]] * 2)


@pytest.mark.parametrize(
    ("ratio", "extra", "expected"), [(2.0, 10, [10, 10, 12, 20]), (1.1, 1, [1, 1, 2, 6]), (0.5, 3, [3, 3, 3, 5])]
)
def test_max_lengths_count_pieces(ratio: float, extra: int, expected: list[int]) -> None:
    search = SearchConfig(length_ratio=ratio, length_extra=extra)
    assert max_lengths(torch.tensor([0, 1, 2, 6]), search).tolist() == expected
