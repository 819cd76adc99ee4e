"""Reranking: translations ranked again by the probability of the source in a run of the reverse direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from translate.decoding.translator import Translation, Translator


def rerank(
    reverse: Translator,
    lines: Sequence[str],
    found: Sequence[Sequence[Translation]],
    weight: float,
    num_best: int,
    first_line: int = 1,
) -> list[list[Translation]]:
    """The best of each line by score + weight × the score of the line given the translation."""
    pairs = [(line, one) for line, several in zip(lines, found, strict=True) for one in several]
    numbers = [number for number, several in enumerate(found, start=first_line) for _ in several]
    forced = reverse.force([one.text for _, one in pairs], [line for line, _ in pairs], numbers=numbers)
    scores = iter([one.score + weight * given.score for (_, one), given in zip(pairs, forced, strict=True)])
    ranked = []
    for several in found:
        again = [replace(one, score=next(scores)) for one in several]
        ranked.append(sorted(again, key=lambda one: -one.score)[:num_best])
    return ranked
