"""Alignment error rate against cases counted by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.alignment.aer import Aer, score, score_each
from translate.alignment.formats import Gold, Link, parse_gold, parse_pharaoh
from translate.errors import DataError

link_sets = st.frozensets(st.builds(Link, st.integers(0, 3), st.integers(0, 4)))
references = st.builds(lambda sure, more: Gold(sure, sure | more), link_sets, link_sets)


def score_lines(hypotheses: list[str], gold: list[str]) -> Aer:
    """Score written lines."""
    return score([parse_pharaoh(line, "a:1") for line in hypotheses], [parse_gold(line, "g:1") for line in gold])


@pytest.mark.parametrize(
    ("hypotheses", "gold", "aer", "precision", "recall"),
    [
        (["0-0 1-1"], ["0-0 1-1"], 0, 1, 1),
        (["0-0"], ["1-1"], 1, 0, 0),
        (["0-0 1-1 2-2"], ["0-0 1p1"], 1 - (1 + 2) / (3 + 1), 2 / 3, 1),  # A 3, S 1, A∩S 1, A∩P 2
        (["0-0 2-1"], ["0-0 1-1 2p1 3-3"], 1 - (1 + 2) / (2 + 3), 1, 1 / 3),  # A 2, S 3, A∩S 1, A∩P 2
        (["0-0 0-0 0-0 1-0"], ["0-0"], 1 - (1 + 1) / (2 + 1), 1 / 2, 1),  # a link given thrice is one
        (["0-1"], ["1-0"], 1, 0, 0),  # source-target is not target-source
        # Over the corpus, A 3, S 4, A∩S 2, A∩P 2: not the mean of the sentences.
        (["0-0", "0-0 1-2", ""], ["0-0", "0-0 1-1", "0-0"], 1 - 4 / 7, 2 / 3, 1 / 2),
    ],
)
def test_counted_by_hand(hypotheses: list[str], gold: list[str], aer: float, precision: float, recall: float) -> None:
    result = score_lines(hypotheses, gold)
    assert (result.aer, result.precision, result.recall) == pytest.approx((aer, precision, recall))
    assert result.sentences == len(gold)


@pytest.mark.parametrize(
    ("hypothesis", "gold", "expected"),
    [
        ("", "", Aer(aer=0, precision=1, recall=1, f1=1, sentences=1)),  # nothing to find and nothing given
        ("", "0p0", Aer(aer=0, precision=1, recall=1, f1=1, sentences=1)),
        ("", "0-0", Aer(aer=1, precision=1, recall=0, f1=0, sentences=1)),  # nothing given is nothing wrong
        ("0-0", "", Aer(aer=1, precision=0, recall=1, f1=0, sentences=1)),
        ("0-0", "0p0", Aer(aer=0, precision=1, recall=1, f1=1, sentences=1)),
    ],
)
def test_nothing_over_nothing(hypothesis: str, gold: str, expected: Aer) -> None:
    assert score_lines([hypothesis], [gold]) == expected


@settings(max_examples=40)
@given(st.lists(st.tuples(link_sets, references), min_size=1, max_size=4))
def test_all_fractions_are_fractions(corpus: list[tuple[frozenset[Link], Gold]]) -> None:
    result = score([links for links, _ in corpus], [gold for _, gold in corpus])
    assert all(0.0 <= value <= 1.0 for value in (result.aer, result.precision, result.recall))


@settings(max_examples=40)
@given(st.lists(references, min_size=1, max_size=4))
def test_all_between_sure_and_possible_is_perfect(gold: list[Gold]) -> None:
    for hypotheses in ([reference.sure for reference in gold], [reference.possible for reference in gold]):
        assert score(hypotheses, gold) == Aer(aer=0, precision=1, recall=1, f1=1, sentences=len(gold))


def test_unequal_counts_are_refused_with_both() -> None:
    with pytest.raises(DataError, match=r"2 lines of alignments, 3 lines of gold"):
        score_lines(["", ""], ["", "", ""])


def test_no_sentences_have_no_score() -> None:
    with pytest.raises(DataError, match="no lines"):
        score([], [])


def test_json_has_the_promised_keys() -> None:
    assert score_lines(["0-0"], ["0-0 1-1"]).as_json() == {
        "aer": pytest.approx(1 / 3),
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
        "sentences": 1,
    }


def test_each_sentence_by_itself() -> None:
    hypotheses = [parse_pharaoh(line, "a:1") for line in ("0-0", "0-0 1-2")]
    gold = [parse_gold(line, "g:1") for line in ("0-0", "0-0 1-1 1p2")]
    first, second = score_each(hypotheses, gold)
    assert first == Aer(aer=0, precision=1, recall=1, f1=1, sentences=1)
    # A 2, S 2, A∩S 1, A∩P 2.
    assert (second.aer, second.precision, second.recall) == pytest.approx((1 - 3 / 4, 1, 1 / 2))
    assert second.f1 == pytest.approx(2 * 1 * 0.5 / 1.5)
