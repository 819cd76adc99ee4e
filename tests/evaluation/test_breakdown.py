"""Test sets divided by what is in their sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from translate.config import DataConfig, TokenizerConfig
from translate.data.dataset import prepare
from translate.evaluation.breakdown import breakdown, training_words
from translate.evaluation.metrics import MetricSettings
from translate.text.corpus import parallel_files
from translate.text.tokenizer import Tokenizer, train_tokenizer

SOURCES = ["Paris is old", "the dog sees the cat and the very small bird", "in 1999 Anna slept ."]
REFERENCES = ["Paris est vieux", "le chien voit le chat et le très petit oiseau", "en 1999 Anna dormait ."]
HYPOTHESES = ["Paris est vieux", "le chien voit le chat et un oiseau", "en 1999 Anne dormait ."]
KNOWN = dict.fromkeys(["is", "old", "the", "dog", "sees", "cat", "and", "very", "small", "in", "slept", "."], 7)
KNOWN |= {"bird": 4}


def test_sentences_are_divided_three_ways() -> None:
    parts = breakdown(SOURCES, HYPOTHESES, [REFERENCES], MetricSettings(), "en", KNOWN)
    counts = {kind: {part.name: part.sentences for part in classes} for kind, classes in parts.items()}
    assert counts == {
        "length": {"0-5": 2, "6-10": 1},
        "rare": {"1": 2, "2": 1},  # Paris; bird; 1999 and Anna
        "copied": {"0": 1, "1": 1, "2": 1},  # nothing; Paris; 1999 and Anna, for a dot is no word
    }
    found = {part.name: part.found for part in parts["copied"]}
    assert found == {"0": None, "1": 1.0, "2": 0.5}
    assert next(part.bleu for part in parts["copied"] if part.name == "1") == 0  # three words have no 4-gram
    assert next(part.chrf for part in parts["copied"] if part.name == "1") == pytest.approx(100)


def test_the_classes_of_length() -> None:
    """Each begins where the one before ends, and the last has no end."""
    lengths = {
        "0-5": (0, 5),
        "6-10": (6, 10),
        "11-15": (11, 15),
        "16-20": (16, 20),
        "21-30": (21, 30),
        "31-50": (31, 50),
    }
    lengths |= {"51+": (51, 80)}
    sources = [" ".join(["the"] * count) for ends in lengths.values() for count in ends]
    parts = breakdown(sources, sources, [sources], MetricSettings(), "en", dict.fromkeys(["the"], 5))
    assert [(part.name, part.sentences) for part in parts["length"]] == [(name, 2) for name in lengths]
    assert [part.name for part in parts["rare"]] == ["0"], "seen five times is not rare"
    rare = breakdown(sources, sources, [sources], MetricSettings(), "en", dict.fromkeys(["the"], 4))
    assert [(part.name, part.sentences) for part in rare["rare"]] == [("0", 1), ("3+", 13)]


def test_a_word_of_letters_or_digits_is_copied_as_it_is() -> None:
    parts = breakdown(["A4 , B5 A4"], ["B5 , x"], [["B5 A4 ,"]], MetricSettings(), "en")
    assert [(part.name, part.found) for part in parts["copied"]] == [("3+", round(1 / 3, 4))]


def test_what_cannot_be_told_is_left_out() -> None:
    assert set(breakdown(SOURCES, HYPOTHESES, [REFERENCES], MetricSettings(), "en")) == {"length", "copied"}
    parts = breakdown(["我们喜欢苹果"], ["we like apples"], [["we like apples"]], MetricSettings(), "zh", {})
    assert {kind: [part.name for part in classes] for kind, classes in parts.items()} == {"length": ["6-10"]}


@pytest.mark.parametrize("kind", ["unigram", "char", "word"])
def test_training_words_are_counted(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").write_text("the dog sees the cat\nthe  bird\n" * 10 + "unseen\n")
    (tmp_path / "b").write_text("x\ny\n" * 10 + "z\n")
    lines = ["the dog sees the cat", "the bird"] * 10
    tokenizer = Tokenizer(train_tokenizer(lines, TokenizerConfig(kind=kind, vocabulary=320), 1, lambda _: None))
    (tmp_path / "cache").mkdir()
    corpus = parallel_files(tmp_path / "a", tmp_path / "b")
    data = DataConfig(folder=str(tmp_path), source_lang="en", target_lang="fr")
    prepare(corpus, tokenizer, tokenizer, data, tmp_path / "cache" / "train.arrow")
    counts = training_words(tmp_path, tokenizer)
    assert counts is not None
    known = Counter(["the", "dog", "sees", "the", "cat", "the", "bird"] * 10)
    assert {word: counts[word] for word in known} == known
    assert all(counts), "no word is empty"
    assert training_words(tmp_path / "cache", tokenizer) is None
