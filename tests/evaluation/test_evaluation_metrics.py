"""Scores of whole corpora, the hopeless included."""

from __future__ import annotations

from translate.evaluation.metrics import evaluate


def test_a_corpus_whose_resamples_differ_in_kind_has_an_interval() -> None:
    """Some of its resamples score float, others float32, which sacreBLEU's bootstrap could not average."""
    scores = evaluate(["A c c"] * 12, ["D E C D", "A B", "B C D"] * 4, seconds=1.0)
    for score in (scores.bleu, scores.chrf, scores.ter):
        assert score.low <= score.score <= score.high


def test_a_perfect_corpus_has_no_doubt() -> None:
    scores = evaluate(["the small dog does sleep"] * 5, ["the small dog does sleep"] * 5, seconds=1.0)
    assert [scores.bleu.low, scores.bleu.high, scores.ter.high] == [100.0, 100.0, 0.0]
