"""Scores by source length, by rare words, and by words that only have to be copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from translate.alignment.units import without_spaces, words
from translate.data.dataset import PairDataset
from translate.errors import RunError
from translate.evaluation.metrics import MetricSettings, build_metrics
from translate.text.tokenizer import SPACE, Tokenizer

LENGTHS = (5, 10, 15, 20, 30, 50)  # greatest length of each class except the last
COUNTS = (0, 1, 2)  # the same for rare and for copied words
RARE = 5  # a word seen less often in training is rare


@dataclass(frozen=True)
class Class:
    """A class of sentences and its scores."""

    name: str
    sentences: int
    bleu: float
    chrf: float
    found: float | None = None
    """Share of the words common to source and reference that are also in the translation."""


Breakdown = dict[str, list[Class]]


def breakdown(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    settings: MetricSettings,
    source_language: str = "",
    training_words: Mapping[str, int] | None = None,
    normalize: Callable[[str], str] = str,
) -> Breakdown:
    """Divide a test set in three ways and score the parts.

    `training_words` counts the source words of the training data after the tokenizer's normalization; `normalize`
    applies it to a sentence.
    """
    spaced = not without_spaces(source_language)
    split = [words(source)[0] if spaced else list(source.replace(" ", "")) for source in sources]
    kinds: dict[str, list[str]] = {"length": [_class(len(units), LENGTHS) for units in split]}
    if training_words is not None and spaced:
        rare = [sum(training_words.get(word, 0) < RARE for word in words(normalize(source))[0]) for source in sources]
        kinds["rare"] = [_class(count, COUNTS) for count in rare]
    copied = [_copied(units, reference) for units, reference in zip(split, references[0], strict=True)]
    if spaced:
        kinds["copied"] = [_class(len(units), COUNTS) for units in copied]
    metrics = build_metrics(settings)
    result: Breakdown = {}
    for kind, names in kinds.items():
        order = {_class(size, LENGTHS if kind == "length" else COUNTS): None for size in range(max(LENGTHS) + 2)}
        result[kind] = []
        for name in order:
            rows = [row for row, its_name in enumerate(names) if its_name == name]
            if rows:
                found = _found([copied[row] for row in rows], [hypotheses[row] for row in rows])
                scores = _scores(metrics, rows, hypotheses, references)
                result[kind].append(Class(name, len(rows), *scores, found if kind == "copied" else None))
    return result


def breakdown_json(parts: Breakdown) -> dict[str, Any]:
    """The classes as JSON."""
    return {kind: [asdict(part) for part in classes] for kind, classes in parts.items()}


def training_words(run: Path, tokenizer: Tokenizer) -> Counter[str] | None:
    """Count the source words of the pairs a run was trained on; None if the run no longer has the pairs."""
    try:
        pairs = PairDataset(run / "cache" / "train.arrow")
    except RunError:
        return None
    pieces = tokenizer.pieces(range(tokenizer.size))
    starts = np.array([piece.startswith(SPACE) for piece in pieces])
    counts = Counter[bytes]()
    for row in range(len(pairs)):
        ids = np.asarray(pairs[row][0])
        bounds = np.flatnonzero(starts[ids]).tolist()
        for begin, end in zip([0, *bounds], [*bounds, len(ids)], strict=True):
            if begin < end:
                counts[ids[begin:end].tobytes()] += 1
    words_of = Counter[str]()
    for spelt, count in counts.items():
        for word in tokenizer.decode(np.frombuffer(spelt, np.int32).tolist()).split(" "):
            words_of[word] += count
    return words_of


def _class(size: int, greatest: Sequence[int]) -> str:
    """Name the class of a size: `0`, `1`, `6-10`, `3+`."""
    low = 0
    for high in greatest:
        if size <= high:
            return str(high) if low >= high else f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def _copied(source: Sequence[str], reference: str) -> list[str]:
    """The source words with a letter or digit that are also in the reference."""
    there = set(words(reference)[0])
    return [word for word in source if word in there and any(char.isalnum() for char in word)]


def _found(copied: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> float | None:
    total = sum(map(len, copied))
    if not total:
        return None
    kept = [sum(word in set(words(line)[0]) for word in units) for units, line in zip(copied, hypotheses, strict=True)]
    return round(sum(kept) / total, 4)


def _scores(
    metrics: Mapping[str, Any], rows: Sequence[int], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[float, float]:
    chosen = [hypotheses[row] for row in rows]
    streams = [[stream[row] for row in rows] for stream in references]
    bleu, chrf = (float(metrics[name].corpus_score(chosen, streams).score) for name in ("bleu", "chrf"))
    return round(bleu, 4), round(chrf, 4)
