"""Precision, recall, F1 and alignment error rate against gold links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from translate.alignment.formats import Gold, Link
from translate.errors import DataError


@dataclass(frozen=True)
class Aer:
    """How well the links of a corpus or a sentence agree with the gold, as fractions."""

    aer: float
    precision: float
    recall: float
    f1: float
    sentences: int

    def as_json(self) -> dict[str, float | int]:
        """Give the object that `translate aer --json` prints."""
        return asdict(self)


def score(hypotheses: Sequence[Collection[Link]], gold: Sequence[Gold]) -> Aer:
    """Count links over the whole corpus (Och and Ney 2003, eq. 20-21), A given, S sure, P possible.

    Precision |A∩P|/|A|, recall |A∩S|/|S|, AER 1 - (|A∩S|+|A∩P|)/(|A|+|S|), F1 the harmonic mean of the first two.
    0/0 counts as 1: without given links none is wrong, without sure links none is missed.
    """
    if len(hypotheses) != len(gold):
        raise DataError(
            f"{len(hypotheses)} lines of alignments, {len(gold)} lines of gold: line N of each must be the same "
            "sentence, empty where it has no link."
        )
    if not gold:
        raise DataError("No alignments to score: the files have no lines.")
    given = [set(links) for links in hypotheses]
    num_given = sum(map(len, given))
    num_sure = sum(len(reference.sure) for reference in gold)
    given_sure = sum(len(links & reference.sure) for links, reference in zip(given, gold, strict=True))
    given_possible = sum(len(links & reference.possible) for links, reference in zip(given, gold, strict=True))
    precision, recall = _ratio(given_possible, num_given), _ratio(given_sure, num_sure)
    return Aer(
        aer=1.0 - _ratio(given_sure + given_possible, num_given + num_sure),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        sentences=len(gold),
    )


def score_each(hypotheses: Sequence[Collection[Link]], gold: Sequence[Gold]) -> list[Aer]:
    """Score every sentence by itself."""
    return [score([links], [reference]) for links, reference in zip(hypotheses, gold, strict=True)]


def _ratio(part: int, whole: int) -> float:
    """Divide, and take 0/0 as 1."""
    return part / whole if whole else 1.0
