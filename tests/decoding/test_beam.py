"""Beam search against greedy, against brute force, and against a plain beam over Python lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.decoding.decoding_models import (
    DECODERS,
    Ranking,
    check_against_forced,
    check_equal,
    count_rows,
    divided,
    encode,
    exhaustive,
    force_all,
    make_model,
    make_sources,
)
from translate.config import SearchConfig
from translate.decoding.beam import beam_search
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import Hypothesis
from translate.models.seq2seq import Seq2Seq
from translate.text.tokenizer import BOS, EOS, PAD

LENGTHS = [4, 1, 6, 3, 5, 2, 7]
every_decoder = pytest.mark.parametrize("name", DECODERS)
every_normalization = pytest.mark.parametrize("normalization", ["none", "average", "wu"])


def search_with(beam: int, normalization: str = "average", ratio: float = 1.5, extra: int = 3) -> SearchConfig:
    return SearchConfig(beam=beam, normalization=normalization, alpha=0.8, length_ratio=ratio, length_extra=extra)


def check_ranking(found: list[list[Hypothesis]], expected: list[Ranking], num_best: int) -> None:
    for several, ranking in zip(found, expected, strict=True):
        scores, tokens = zip(*ranking[:num_best], strict=True)
        assert tuple(one.tokens for one in several) == tokens
        np.testing.assert_allclose([one.score for one in several], scores, atol=1e-9)


def plain_beam(model: Seq2Seq, source: list[int], longest: int, search: SearchConfig) -> Ranking:
    """The same search with lists, one hypothesis after the other, that never stops early."""
    finished: Ranking = []
    live: Ranking = [(0.0, ())]
    for length in range(1, longest + 1):
        candidates = []
        if not live:
            break
        following = force_all(model, source, [tokens for _, tokens in live])[0][:, -1].tolist()
        for (total, tokens), log_probs in zip(live, following, strict=True):
            allowed = [EOS] if length == longest else [w for w in range(len(log_probs)) if w not in (PAD, BOS)]
            candidates += [(total + log_probs[w], (*tokens, w)) for w in allowed]
        chosen = sorted(candidates, reverse=True)[: search.beam - len(finished)]
        finished += [(divided(total, length, search), y[:-1]) for total, y in chosen if y[-1] == EOS]
        live = [(total, y) for total, y in chosen if y[-1] != EOS]
    return sorted(finished, reverse=True)


@pytest.mark.parametrize("prepare", [Seq2Seq.double, Seq2Seq.float], ids=["float64", "float32"])
@every_decoder
def test_a_beam_of_one_is_greedy(name: str, prepare: Callable[[Seq2Seq], Seq2Seq]) -> None:
    for seed in range(2):
        model = prepare(make_model(name, seed=seed, ending=4.0))
        source = encode(model, make_sources([*LENGTHS, 0], seed))
        search = search_with(beam=1)
        for found, expected in zip(beam_search(model, source, search), greedy(model, source, search), strict=True):
            assert len(found) == 1
            check_equal(found[0], expected, tolerance=0.0)


def test_a_beam_of_one_is_greedy_where_all_tokens_are_equally_likely() -> None:
    model = make_model("bahdanau", tgt_vocabulary=90)
    with torch.no_grad():
        model.decoder.output.vocabulary.weight.zero_()
        model.decoder.output.vocabulary.bias.zero_()
    source, search = encode(model, make_sources(LENGTHS)), search_with(beam=1)
    assert [one for (one,) in beam_search(model, source, search)] == greedy(model, source, search)
    wide = search_with(beam=4)
    assert beam_search(model, source, wide, 4) == beam_search(model, source, wide, 4)


@every_normalization
@every_decoder
def test_a_wide_beam_is_brute_force(name: str, normalization: str) -> None:
    """Three words and up to four tokens make 1 + 3 + 9 + 27 = 40 translations, in a vocabulary of six."""
    search = search_with(40, normalization, ratio=0.1, extra=4)
    model, sources = make_model(name, tgt_vocabulary=6, seed=1, ending=2.0), make_sources([3, 1, 5])
    encoded = encode(model, sources)
    expected = [exhaustive(model, source, 4, search) for source in sources]
    for num_best in (1, 3, 40):
        check_ranking(beam_search(model, encoded, search, num_best), expected, num_best)


@every_normalization
@every_decoder
def test_a_narrow_beam_is_the_plain_beam(name: str, normalization: str) -> None:
    """Also that stopping early changes nothing among the best."""
    search = search_with(4, normalization, extra=2)
    model, sources = make_model(name, seed=2, ending=4.0), make_sources([4, 1, 6, 3])
    encoded = encode(model, sources)
    expected = [plain_beam(model, source, int(1.5 * (len(source) - 1) + 2), search) for source in sources]
    for num_best in (1, 2, 4):
        check_ranking(beam_search(model, encoded, search, num_best), expected, num_best)


@every_decoder
def test_hypotheses_are_sorted_distinct_bounded_and_true_to_forward(name: str) -> None:
    search = search_with(5)
    lengths = set()
    for seed in range(2):
        model, sources = make_model(name, seed=seed, ending=4.0), make_sources(LENGTHS, seed)
        for source, found in zip(sources, beam_search(model, encode(model, sources), search, 4), strict=True):
            assert len(found) == 4
            assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
            assert len({one.tokens for one in found}) == len(found)
            for one in found:
                assert len(one.tokens) + 1 <= int(1.5 * (len(source) - 1) + 3)
                check_against_forced(model, source, one, search)
                lengths.add(len(one.tokens))
    assert len(lengths) > 4, "too few different lengths: the test sees too little"


@every_decoder
def test_a_batch_in_any_order_gives_what_each_sentence_gives_alone(name: str) -> None:
    model, sources, search = make_model(name, seed=3, ending=4.0), make_sources([*LENGTHS, 0]), search_with(5)
    alone = [beam_search(model, encode(model, [source]), search, 3)[0] for source in sources]
    for order in (range(8), [3, 7, 0, 5, 1, 6, 2, 4]):
        together = beam_search(model, encode(model, [sources[i] for i in order], more_padding=2), search, 3)
        for i, found in zip(order, together, strict=True):
            for one, expected in zip(found, alone[i], strict=True):
                check_equal(one, expected)


def test_in_single_precision_one_line_in_two_hundred_may_differ_by_a_near_tie() -> None:
    model, search = make_model("bahdanau", tgt_vocabulary=40, seed=5, ending=4.0).float(), search_with(5)
    sources = make_sources([2 + i % 12 for i in range(400)], seed=5)
    alone = [beam_search(model, encode(model, [source]), search)[0][0] for source in sources]
    order = np.random.default_rng(1).permutation(len(sources)).tolist()
    different = 0
    for rows in (order[:150], order[150:157], order[157:]):
        together = beam_search(model, encode(model, [sources[i] for i in rows], more_padding=3), search)
        for i, (found,) in zip(rows, together, strict=True):
            assert found.score == pytest.approx(alone[i].score, abs=1e-4)
            different += found.tokens != alone[i].tokens
    assert different <= len(sources) // 200


@every_decoder
def test_sources_without_words_give_finite_results(name: str) -> None:
    for sources in (make_sources([0]), make_sources([1]), make_sources([0, 1, 4])):
        model, search = make_model(name, ending=2.0), search_with(3)
        encoded = encode(model, sources, more_padding=1)
        found = [*beam_search(model, encoded, search, 3), greedy(model, encoded, search)]
        for one in (one for several in found for one in several):
            assert np.isfinite([one.log_prob, one.score]).all()
            assert one.weights is None or np.isfinite(one.weights).all()


def test_end_is_forced_at_the_maximal_length() -> None:
    model, sources = make_model("bahdanau", ending=-100.0), make_sources(LENGTHS)
    search = search_with(3)
    for source, found in zip(sources, beam_search(model, encode(model, sources), search, 3), strict=True):
        assert {len(one.tokens) for one in found} == {int(1.5 * (len(source) - 1) + 3) - 1}
        for one in found:
            check_against_forced(model, source, one, search)
            assert one.log_prob < -50.0, "the forced </s> is not counted"


@every_normalization
def test_only_what_can_still_win_goes_through_the_network(normalization: str) -> None:
    model, sources = make_model("luong", ending=300.0), make_sources(LENGTHS)
    encoded, rows = encode(model, sources), count_rows(model)
    assert {found[0].tokens for found in beam_search(model, encoded, search_with(4, normalization))} == {()}
    assert rows == [len(LENGTHS)]
    rows.clear()
    beam_search(model, encoded, search_with(4, normalization), num_best=2)
    assert len(rows) > 1
    assert rows[1] == 3 * len(LENGTHS), "a hypothesis that ended keeps its place"
