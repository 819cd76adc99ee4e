"""Every rule and penalty against exhaustive search on a tiny vocabulary, and what each promises by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from tests.decoding.decoding_models import (
    DECODERS,
    check_against_forced,
    check_equal,
    encode,
    exhaustive,
    make_model,
    make_sources,
)
from translate.config import SearchConfig, choices
from translate.decoding.beam import beam_search
from translate.decoding.constraints import Constraint, Constraints, Pieces
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import likeliest

Tokens = tuple[int, ...]
LONGEST = 4  # tokens with </s>: with three words there are 1 + 3 + 9 + 27 = 40 translations


def search_with(**settings: object) -> SearchConfig:
    tiny = {"beam": 40, "length_ratio": 0.1, "length_extra": LONGEST, "alpha": 0.8}
    return SearchConfig.model_validate({**tiny, **settings})


def repeats(tokens: Tokens, size: int) -> bool:
    windows = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return len(set(windows)) < len(windows)


def holds(tokens: Tokens, part: Pieces) -> bool:
    return any(tokens[i : i + len(part)] == part for i in range(len(tokens)))


# settings, banned, constraint, which translations are left. The words are 1 (unknown), 4 and 5; 2 is <s>, 3 is </s>.
CASES: dict[str, tuple[dict[str, object], list[Pieces], Constraint, Callable[[Tokens], bool]]] = {
    "coverage": ({"coverage_penalty": 0.4}, [], Constraint(), lambda y: True),
    "max_length": ({"max_length": 3}, [], Constraint(), lambda y: len(y) + 1 <= 3),
    "min_length": ({"min_length": 3}, [], Constraint(), lambda y: len(y) + 1 >= 3),
    "no_repeat_ngram=1": ({"no_repeat_ngram": 1}, [], Constraint(), lambda y: not repeats(y, 1)),
    "no_repeat_ngram=2": ({"no_repeat_ngram": 2}, [], Constraint(), lambda y: not repeats(y, 2)),
    "banned": ({}, [(4,), (5, 1)], Constraint(), lambda y: 4 not in y and not holds(y, (5, 1))),
    "prefix": ({}, [], Constraint(prefix=(5, 4)), lambda y: y[:2] == (5, 4)),
    "required": ({}, [], Constraint(required=((4,), (5, 1))), lambda y: 4 in y and holds(y, (5, 1))),
    "required twice": ({}, [], Constraint(required=((4, 4, 5),)), lambda y: holds(y, (4, 4, 5))),
    "all": (
        {"coverage_penalty": 0.3, "min_length": 2, "no_repeat_ngram": 2},
        [(1, 4)],
        Constraint(prefix=(5,), required=((4,),)),
        lambda y: y[:1] == (5,) and 4 in y and not holds(y, (1, 4)) and not repeats(y, 2),
    ),
}


@pytest.mark.parametrize("stop", ["exact", "full"])
@pytest.mark.parametrize("normalization", choices(SearchConfig, "normalization"))
@pytest.mark.parametrize("case", CASES)
def test_a_wide_beam_is_brute_force(case: str, normalization: str, stop: str) -> None:
    settings, banned, constraint, allowed = CASES[case]
    search = search_with(normalization=normalization, stop=stop, **settings)
    model, sources = make_model("bahdanau", tgt_vocabulary=6, seed=1, ending=2.0), make_sources([3, 1, 5])
    encoded = encode(model, sources)
    expected = [exhaustive(model, source, LONGEST, search, allowed) for source in sources]
    for num_best in (1, 3, 40):
        found = beam_search(
            model, encoded, search, num_best, Constraints(encoded, search, banned, [constraint] * len(sources))
        )
        for several, ranking in zip(found, expected, strict=True):
            assert [one.tokens for one in several][: len(ranking)] == [tokens for _, tokens in ranking[:num_best]]
            scores = [score for score, _ in ranking[:num_best]]
            np.testing.assert_allclose([one.score for one in several][: len(ranking)], scores, atol=1e-9)


def test_relative_lengths_are_kept() -> None:
    search = SearchConfig(beam=4, min_ratio=1.2, length_ratio=1.5, length_extra=2)
    model, sources = make_model("luong", ending=3.0), make_sources([2, 4, 7, 10])
    for source, found in zip(sources, beam_search(model, encode(model, sources), search, 3), strict=True):
        for one in found:
            assert 1.2 * (len(source) - 1) <= len(one.tokens) + 1 <= 1.5 * (len(source) - 1) + 2
            check_against_forced(model, source, one, search)


@pytest.mark.parametrize("stop", choices(SearchConfig, "stop"))
@pytest.mark.parametrize("name", DECODERS)
def test_a_beam_of_one_is_greedy_under_every_rule(name: str, stop: str) -> None:
    search = SearchConfig(
        beam=1, stop=stop, coverage_penalty=0.3, min_ratio=0.8, no_repeat_ngram=2, length_ratio=1.5, length_extra=3
    )
    model, sources = make_model(name, ending=4.0), make_sources([4, 1, 6, 3, 5])
    encoded = encode(model, sources)
    each = [
        Constraint(),
        Constraint(prefix=(5, 6)),
        Constraint(prefix=(9,)),
        Constraint(),
        Constraint(),
    ]
    constraints = [Constraints(encoded, search, [(7,), (4, 5)], each) for _ in range(2)]
    alone = greedy(model, encoded, search, constraints[0])
    for found, expected in zip(beam_search(model, encoded, search, constraints=constraints[1]), alone, strict=True):
        check_equal(found[0], expected, tolerance=0.0)


def test_narrow_beams_find_required_words() -> None:
    """Whatever the model thinks of them, and with a single place too."""
    model, sources = make_model("bahdanau", ending=3.0), make_sources([4, 1, 6, 3, 5])
    encoded = encode(model, sources)
    each = [
        Constraint(required=((5, 6), (7,))),
        Constraint(),
        Constraint(required=((8, 8, 9),)),
        Constraint(required=((10,),)),
        Constraint(),
    ]
    for beam in (1, 2, 5):
        search = SearchConfig(beam=beam, length_ratio=2.0, length_extra=8)
        free = beam_search(model, encoded, search)
        for i, found in enumerate(
            beam_search(model, encoded, search, constraints=Constraints(encoded, search, (), each))
        ):
            for phrase in each[i].required:
                assert holds(found[0].tokens, phrase)
            check_against_forced(model, sources[i], found[0], search)
            if not each[i].required:
                check_equal(found[0], free[i][0])


def test_all_of_the_n_best_hold_what_is_required_if_any_does() -> None:
    """With little room many hypotheses are cut off before they have written it."""
    model, sources = make_model("bahdanau", ending=3.0), make_sources([4, 1, 6, 3])
    encoded, phrase = encode(model, sources), (8, 8, 9)
    search = SearchConfig(beam=6, length_ratio=0.01, length_extra=6, stop="full")
    constraints = Constraints(encoded, search, (), [Constraint(required=(phrase,))] * 4)
    counts = []
    for found in beam_search(model, encoded, search, num_best=6, constraints=constraints):
        assert all(holds(one.tokens, phrase) for one in found)
        counts.append(len(found))
    assert min(counts) < 6, "none was cut off"


def test_rules_and_batches_do_not_mix() -> None:
    """Each sentence alone gives what it gives among others, in any order, exactly."""
    model, sources = make_model("bahdanau", ending=3.0), make_sources([4, 1, 6, 3, 5, 2])
    each = [
        Constraint(prefix=(5,)),
        Constraint(),
        Constraint(required=((8, 9),)),
        Constraint(required=((4,), (6, 6))),
        Constraint(),
        Constraint((7, 7)),
    ]
    search = SearchConfig(beam=3, coverage_penalty=0.2, no_repeat_ngram=3, min_ratio=0.5, length_extra=4)

    def run(order: Sequence[int]) -> list[tuple[int, list[Tokens], list[float]]]:
        encoded = encode(model, [sources[i] for i in order], more_padding=len(order) % 3)
        constraints = Constraints(encoded, search, [(10,)], [each[i] for i in order])
        found = beam_search(model, encoded, search, 2, constraints)
        return [
            (i, [one.tokens for one in several], [one.score for one in several])
            for i, several in zip(order, found, strict=True)
        ]

    alone = [run([i])[0] for i in range(6)]
    for order in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]):
        for i, tokens, scores in run(order):
            assert tokens == alone[i][1]
            np.testing.assert_allclose(scores, alone[i][2], atol=1e-9)


def test_first_ends_with_the_first() -> None:
    """It finds no more than asked for, and what it finds is what a full search has among its own."""
    model, sources = make_model("bahdanau", seed=3, ending=3.0), make_sources([4, 6, 3, 5])
    encoded = encode(model, sources)
    shorter = 0
    for num_best in (1, 2):
        first = beam_search(model, encoded, SearchConfig(beam=5, stop="first"), num_best)
        full = beam_search(model, encoded, SearchConfig(beam=5, stop="full"), 5)
        for early, late in zip(first, full, strict=True):
            assert {one.tokens for one in early} <= {one.tokens for one in late}
            shorter += early[0].score < late[0].score - 1e-9
    assert shorter, "stopping at the first loses nothing here: the test sees too little"


def test_groups_differ() -> None:
    model, sources = make_model("bahdanau", seed=2, ending=3.0), make_sources([4, 6, 3, 5])
    encoded = encode(model, sources)
    plain = beam_search(model, encoded, SearchConfig(beam=2), 2)
    same = beam_search(model, encoded, SearchConfig(beam=6, groups=3, diversity=0.0, stop="full"), 6)
    for one, other in zip(plain, same, strict=True):
        assert [a.tokens for a in other] == [a.tokens for a in one], "without a penalty all groups are one beam of two"
    spread = SearchConfig(beam=6, groups=3, diversity=1e4)
    for source, found in zip(sources, beam_search(model, encoded, spread, 6), strict=True):
        assert len({one.tokens for one in found}) == len(found)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({one.tokens[:1] for one in found}) >= 3, "all groups begin with the same word"
        for one in found:
            check_against_forced(model, source, one, spread)


@pytest.mark.parametrize("vocabulary", [5, 127, 640, 1000, 4097])
def test_likeliest_is_topk(vocabulary: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(7, vocabulary)
    values[2, ::3] = -torch.inf
    values[3] = -torch.inf
    values[3, -1] = 0.0
    for count in (1, 2, 5):
        expected = values.topk(min(count, vocabulary), dim=1)
        best, tokens = likeliest(values, count)
        torch.testing.assert_close(best, expected.values)
        possible = best > -torch.inf
        torch.testing.assert_close(values.gather(1, tokens)[possible], best[possible])
        real = [row[kept].tolist() for row, kept in zip(tokens, possible, strict=True)]
        assert all(len(set(row)) == len(row) for row in real), "of what is impossible, one token may come twice"
