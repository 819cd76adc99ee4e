"""BLEU, chrF and TER by sacreBLEU: no score without its signature and its 95 % confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from translate.errors import DataError

RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """One metric of a whole corpus; low and high are the bootstrap's 95 % interval."""

    score: float
    low: float
    high: float
    signature: str


@dataclass(frozen=True)
class Evaluation:
    """All metrics of a set of translations."""

    bleu: Score
    chrf: Score
    ter: Score
    sentences: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def quick_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF without intervals, for validation during training."""
    check_counts(len(hypotheses), len(references))
    return {
        "bleu": BLEU().corpus_score(list(hypotheses), [list(references)]).score,
        "chrf": CHRF().corpus_score(list(hypotheses), [list(references)]).score,
    }


def evaluate(hypotheses: Sequence[str], references: Sequence[str], seconds: float) -> Evaluation:
    """Score translations against one reference each; `seconds` is what translating took."""
    check_counts(len(hypotheses), len(references))
    bleu, chrf, ter = (_score(metric, hypotheses, references) for metric in (BLEU(), CHRF(), TER()))
    return Evaluation(bleu, chrf, ter, len(hypotheses), round(seconds, 3))


def check_counts(num_hypotheses: int, num_references: int) -> None:
    """Refuse what cannot be paired line by line."""
    if num_hypotheses != num_references:
        raise DataError(
            f"{num_hypotheses} translations, {num_references} references: "
            "line N of each must belong to the same sentence."
        )
    if not num_hypotheses:
        raise DataError("There is nothing to score: no sentence was given.")


def _give_floats(metric: Any) -> None:
    """Some resamples of a hopeless corpus score numpy's float32, others float, and sacreBLEU 2.6 cannot mean both."""
    compute = metric._compute_score_from_stats

    def as_float(stats: Any) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = as_float


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    resamples = RESAMPLES if len(hypotheses) > 1 else 1  # one sentence cannot be drawn differently
    _give_floats(metric)
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=resamples)
    mean, half = float(getattr(result, "_mean", -1.0)), float(getattr(result, "_ci", -1.0))
    if half < 0:
        mean, half = result.score, 0.0
    signature = metric.get_signature().format()
    low = max(0.0, mean - half)  # the bootstrap takes its interval to be symmetric, which near 0 it is not
    return Score(round(result.score, 4), round(low, 4), round(mean + half, 4), signature)
