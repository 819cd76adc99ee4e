"""Significance tests between systems: sacreBLEU's paired bootstrap and approximate randomisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.significance import PairedTest

from translate.defaults import RESAMPLES, TRIALS
from translate.errors import UserError
from translate.evaluation.metrics import MetricSettings, build_metrics, check_counts, sentence_scores

METRICS = ("bleu", "chrf", "chrf++", "ter")


@dataclass(frozen=True)
class Compared:
    """A metric of a system; the baseline has no probabilities."""

    score: float
    mean: float
    interval: float
    """Half the width of the bootstrap's 95 % interval around its mean."""
    bootstrap: float | None
    """The p-value of the difference from the baseline, by paired bootstrap."""
    randomisation: float | None
    """The same by approximate randomisation."""


@dataclass(frozen=True)
class Change:
    """A sentence that a system and the baseline translated differently, with both chrF scores."""

    line: int
    change: float
    baseline: float
    system: float


@dataclass(frozen=True)
class Comparison:
    """Several systems on the same sentences, the baseline first."""

    systems: list[str]
    scores: dict[str, list[Compared]]
    signatures: dict[str, str]
    changes: dict[str, list[Change]]
    sentences: int

    def as_json(self) -> dict[str, Any]:
        """Give the object that `translate compare --json` prints."""
        return {
            "baseline": self.systems[0],
            "systems": [
                {"name": name, **{metric: asdict(rows[i]) for metric, rows in self.scores.items()}}
                for i, name in enumerate(self.systems)
            ],
            "signatures": self.signatures,
            "changes": {name: [asdict(change) for change in changes] for name, changes in self.changes.items()},
            "sentences": self.sentences,
        }


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    settings: MetricSettings,
    metrics: Sequence[str] = METRICS,
    samples: int = RESAMPLES,
    trials: int = TRIALS,
    most_changes: int = 5,
) -> Comparison:
    """Test every system against the first; names must be unique, and all must have translated the same sentences."""
    names = [name for name, _ in systems]
    if len(names) < 2:
        raise UserError("There is nothing to compare: give a baseline and at least one other system.")
    if len(set(names)) < len(names):
        raise UserError(f"{max(names, key=names.count)} is named twice: a system can only be compared with others.")
    for name, lines in systems:
        check_lines(name, lines, references)
        check_counts(len(lines), len(references[0]))
    given: list[tuple[str, Sequence[str]]] = [(name, list(lines)) for name, lines in systems]
    streams = [list(stream) for stream in references]
    tests = {"bs": samples, "ar": trials}
    results, signatures = dict[str, dict[str, Any]](), dict[str, dict[str, str]]()
    for kind, count in tests.items():
        built = build_metrics(settings)
        test = PairedTest(given, {name: built[name] for name in metrics}, streams, kind, n_samples=count)
        found, columns = test()
        # sacreBLEU names its columns itself, in the order of the metrics it was given.
        titles = [title for title in columns if title != "System"]
        results[kind] = {name: columns[title] for name, title in zip(metrics, titles, strict=True)}
        signatures[kind] = {name: found[title].format() for name, title in zip(metrics, titles, strict=True)}
    scores = {
        name: [
            Compared(
                round(float(bootstrap.score), 4),
                round(float(bootstrap.mean), 4),
                round(float(bootstrap.ci), 4),
                _chance(bootstrap, results["bs"][name][0]),
                _chance(randomised, results["ar"][name][0]),
            )
            for bootstrap, randomised in zip(results["bs"][name], results["ar"][name], strict=True)
        ]
        for name in metrics
    }
    return Comparison(
        systems=names,
        scores=scores,
        signatures=signatures["bs"],
        changes={name: _changes(given[0][1], lines, streams, settings, most_changes) for name, lines in given[1:]},
        sentences=len(given[0][1]),
    )


def check_lines(name: str, lines: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse a system that has not translated the sentences of the references."""
    for stream in references:
        if len(lines) != len(stream):
            raise UserError(
                f"{name} has {len(lines)} translations, the reference {len(stream)} lines: "
                "line N of each must belong to the same sentence."
            )


def _chance(row: Any, baseline: Any) -> float | None:
    """The p-value of a system; 1 for a difference of zero, for which sacreBLEU counts only greater differences."""
    if row.p_value is None:
        return None
    return 1.0 if row.score == baseline.score else float(row.p_value)


def _changes(
    baseline: Sequence[str],
    system: Sequence[str],
    streams: Sequence[Sequence[str]],
    settings: MetricSettings,
    most: int,
) -> list[Change]:
    """The sentences whose chrF differs most, greatest difference first."""
    rows = [row for row, (one, other) in enumerate(zip(baseline, system, strict=True)) if one != other]
    references = [[stream[row] for row in rows] for stream in streams]
    before, after = (
        [scores["chrf"] for scores in sentence_scores([lines[row] for row in rows], references, settings)]
        for lines in (baseline, system)
    )
    changes = [
        Change(row + 1, round(new - old, 4), old, new) for row, old, new in zip(rows, before, after, strict=True)
    ]
    return sorted(changes, key=lambda change: (-abs(change.change), change.line))[:most]
