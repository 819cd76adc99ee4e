"""Is a system better, or is it chance? Both tests, each with its own number of trials, and what changed most."""

from __future__ import annotations

import inspect

import pytest

from translate.cli.compare import command as compare_command
from translate.errors import DataError, UserError
from translate.evaluation.compare import METRICS, Comparison, compare
from translate.evaluation.metrics import MetricSettings, evaluate, sentence_scores

REFERENCE = [
    f"the {size} {animal} sees a house" for size in ("small", "large", "old") for animal in ("dog", "cat", "man")
]
WORSE = [line.replace("sees", "hears").replace("house", "tree") for line in REFERENCE]
BETTER = [line if row != 4 else "no word is right" for row, line in enumerate(REFERENCE)]
SYSTEMS = [("worse", WORSE), ("better", BETTER), ("copy", list(WORSE))]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(SYSTEMS, [REFERENCE], MetricSettings(), ["chrf", "bleu"], samples=40, trials=90, most_changes=3)


def test_the_scores_are_those_of_each_system_alone(comparison: Comparison) -> None:
    assert comparison.systems == ["worse", "better", "copy"]
    assert comparison.sentences == 9
    assert list(comparison.scores) == ["chrf", "bleu"]
    for place, (_, lines) in enumerate(SYSTEMS):
        alone = evaluate(lines, REFERENCE, 1.0).scores
        for name, rows in comparison.scores.items():
            assert rows[place].score == pytest.approx(alone[name].score, abs=1e-4)
            assert rows[place].mean == pytest.approx(rows[place].score, abs=rows[place].interval + 1)
    for row in (row for rows in comparison.scores.values() for row in rows):
        assert [round(number, 4) for number in (row.score, row.mean, row.interval)] == [
            row.score,
            row.mean,
            row.interval,
        ]
    assert "nrefs:1" in comparison.signatures["bleu"]
    assert "bs:40" in comparison.signatures["bleu"]


def test_both_tests_have_their_own_number_of_trials(comparison: Comparison) -> None:
    for rows in comparison.scores.values():
        baseline, better, copy = rows
        assert better.interval > 0
        assert (baseline.bootstrap, baseline.randomisation) == (None, None)
        assert (copy.bootstrap, copy.randomisation) == (1.0, 1.0), "no difference is never a surprise"
        assert better.bootstrap == pytest.approx(1 / 41), "no resample differed as much"
        assert better.randomisation is not None
        assert better.randomisation * 91 == pytest.approx(round(better.randomisation * 91))
        assert better.randomisation < 0.1


def test_what_changed_most_comes_first(comparison: Comparison) -> None:
    assert set(comparison.changes) == {"better", "copy"}
    assert comparison.changes["copy"] == []
    settings = MetricSettings()
    before, after = (
        [scores["chrf"] for scores in sentence_scores(lines, REFERENCE, settings)] for lines in (WORSE, BETTER)
    )
    order = sorted(range(9), key=lambda row: (-abs(after[row] - before[row]), row))[:3]
    changes = comparison.changes["better"]
    assert [change.line for change in changes] == [row + 1 for row in order]
    for row, change in zip(order, changes, strict=True):
        assert (change.baseline, change.system) == (before[row], after[row])
        assert change.change == round(after[row] - before[row], 4)
    every = compare(SYSTEMS[:2], [REFERENCE], settings, ["chrf"], 2, 2, most_changes=99).changes["better"]
    assert sorted(change.line for change in every) == list(range(1, 10))
    assert next(change.change for change in every if change.line == 5) < 0


def test_json_names_everything(comparison: Comparison) -> None:
    about = comparison.as_json()
    assert set(about) == {"baseline", "systems", "signatures", "changes", "sentences"}
    assert about["baseline"] == "worse"
    assert [system["name"] for system in about["systems"]] == ["worse", "better", "copy"]
    assert about["systems"][1]["chrf"]["score"] == comparison.scores["chrf"][1].score
    assert about["changes"]["better"][0]["line"] == comparison.changes["better"][0].line


def test_the_command_has_the_same_defaults() -> None:
    ours, command = (inspect.signature(function).parameters for function in (compare, compare_command))
    assert ours["samples"].default == command["samples"].default
    assert ours["trials"].default == command["trials"].default
    assert ours["most_changes"].default == command["changed"].default
    assert METRICS == ours["metrics"].default == ("bleu", "chrf", "chrf++", "ter")


def test_several_references_count(comparison: Comparison) -> None:
    both = compare(SYSTEMS[:2], [REFERENCE, WORSE], MetricSettings(), ["bleu"], 2, 2)
    assert both.scores["bleu"][0].score == pytest.approx(100)


@pytest.mark.parametrize(
    ("systems", "references", "message"),
    [
        ([("one", WORSE)], [REFERENCE], "nothing to compare"),
        ([("one", WORSE), ("two", WORSE), ("one", WORSE)], [REFERENCE], "^one is named twice"),
        ([("one", WORSE), ("two", WORSE[:8])], [REFERENCE], "two has 8 translations, the reference 9 lines"),
        ([("one", WORSE), ("two", WORSE)], [REFERENCE, REFERENCE[:7]], "one has 9 translations, the reference 7"),
        ([("one", []), ("two", [])], [[]], "nothing to score"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    systems: list[tuple[str, list[str]]], references: list[list[str]], message: str
) -> None:
    with pytest.raises((UserError, DataError), match=message):
        compare(systems, references, MetricSettings(), ["bleu"], 2, 2)
