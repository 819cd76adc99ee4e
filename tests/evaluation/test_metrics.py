"""Scores of whole corpora, the hopeless included."""

from __future__ import annotations

import re

import pytest

from translate.errors import DataError, UserError
from translate.evaluation.metrics import MetricSettings, build_metrics, evaluate, sentence_scores, tokenizer_for


def test_a_corpus_whose_resamples_differ_in_kind_has_an_interval() -> None:
    """Some of its resamples score float, others float32, which sacreBLEU's bootstrap could not average."""
    scores = evaluate(["A c c"] * 12, ["D E C D", "A B", "B C D"] * 4, seconds=1.0)
    for score in (scores.bleu, scores.chrf, scores.ter):
        assert score.low <= score.score <= score.high


def test_a_perfect_corpus_has_no_doubt() -> None:
    scores = evaluate(["the small dog does sleep"] * 5, ["the small dog does sleep"] * 5, seconds=1.0)
    assert [scores.bleu.low, scores.bleu.high, scores.ter.high] == [100.0, 100.0, 0.0]


LINES = ["the small dog sleeps", "A man reads the Book", "two cats , one dog"]
FIRST = ["the small dog is sleeping", "a man reads the book", "two cats and one dog"]
SECOND = ["the little dog sleeps", "A man is reading", "two cats , a dog"]


def test_several_references_are_better_than_one() -> None:
    one, both = evaluate(LINES, FIRST, 1.0), evaluate(LINES, [FIRST, SECOND], 1.0)
    assert both.bleu.score > one.bleu.score
    assert "nrefs:2" in both.bleu.signature


def test_case_is_ignored_on_request() -> None:
    plain = evaluate(LINES, FIRST, 1.0)
    assert plain.lowercase is None
    both = evaluate(LINES, FIRST, 1.0, MetricSettings(lowercase=True))
    assert both.scores == plain.scores
    assert both.lowercase is not None
    assert both.lowercase["bleu"].score > plain.bleu.score
    assert "case:lc" in both.lowercase["bleu"].signature
    assert both.as_json()["lowercase"]["chrf++"]["score"] == both.lowercase["chrf++"].score


@pytest.mark.parametrize(
    ("language", "installed", "tokenizer"),
    [
        ("fr", True, "13a"),
        ("", True, "13a"),
        ("zh", False, "zh"),
        ("zh-Hant", False, "zh"),
        ("cmn", False, "zh"),
        ("th", False, "char"),
        ("ja", True, "ja-mecab"),
        ("ko_KR", True, "ko-mecab"),
    ],
)
def test_the_tokenizer_follows_the_language(
    monkeypatch: pytest.MonkeyPatch, language: str, installed: bool, tokenizer: str
) -> None:
    monkeypatch.setattr("translate.evaluation.metrics.find_spec", lambda _: installed or None)
    assert tokenizer_for(language) == tokenizer


@pytest.mark.parametrize(("language", "package"), [("ja", "sacrebleu[ja]"), ("ko", "sacrebleu[ko]")])
def test_a_missing_tokenizer_is_told(monkeypatch: pytest.MonkeyPatch, language: str, package: str) -> None:
    monkeypatch.setattr("translate.evaluation.metrics.find_spec", lambda _: None)
    with pytest.warns(UserWarning, match=re.escape(package)):
        assert tokenizer_for(language) == "char"


def test_chinese_is_cut_for_every_metric() -> None:
    scores = evaluate(["我们喜欢苹果", "他在家"], ["我们喜欢香蕉", "他在家"], 1.0, MetricSettings("zh"))
    assert "tok:zh" in scores.bleu.signature
    assert 0 < scores.bleu.score < 100
    assert 0 < scores.ter.score < 50, "one word of a sentence is wrong, not the sentence"


def test_an_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(UserError, match="--tokenize nltk: choose from none, 13a"):
        build_metrics(MetricSettings(tokenize="nltk"))


def test_sentences_by_themselves() -> None:
    rows = sentence_scores([*LINES, "yes"], [*FIRST, "yes"], MetricSettings())
    assert [set(row) for row in rows] == [{"bleu", "chrf", "chrf++", "ter"}] * 4
    assert rows[3] == {"bleu": 100, "chrf": 100, "chrf++": 100, "ter": 0}, "a word alone has no 4-grams to miss"
    assert rows[0]["ter"] == pytest.approx(100 * 2 / 5)  # "sleeps" becomes two words, of five


def test_unequal_counts_are_refused() -> None:
    for references in (FIRST[:2], [FIRST, SECOND[:2]]):
        with pytest.raises(DataError, match="3 translations, 2 references"):
            evaluate(LINES, references, 1.0)
