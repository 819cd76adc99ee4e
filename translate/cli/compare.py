"""`translate compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from translate.cli.evaluate import NAMES, TokenizeOption
from translate.cli.options import DeviceOption, PluginOption
from translate.defaults import RESAMPLES, TRIALS

if TYPE_CHECKING:
    from translate.evaluation.compare import Comparison


def command(
    systems: Annotated[
        list[Path], typer.Argument(metavar="BASELINE SYSTEM…", help="Runs, or files of translations; at least two.")
    ],
    split: Annotated[str, typer.Option(help="Part of the runs' own data: test or valid.")] = "test",
    source: Annotated[
        Path | None, typer.Option(help="Translate this file instead of the runs' own data; needs --reference.")
    ] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Reference translations of --source. Repeatable.")
    ] = None,
    tokenize: TokenizeOption = None,
    metric: Annotated[list[str] | None, typer.Option(help="bleu, chrf, chrf++ or ter; all if left out.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Resamples of the paired bootstrap.")] = RESAMPLES,
    trials: Annotated[int, typer.Option(min=1, help="Trials of approximate randomisation.")] = TRIALS,
    changed: Annotated[int, typer.Option(min=0, help="How many of the most changed sentences to show.")] = 5,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Test if systems differ significantly from the first one, the baseline, by sacreBLEU's two paired tests."""
    import json

    from translate.errors import UserError
    from translate.evaluation.compare import METRICS, check_lines, compare
    from translate.evaluation.metrics import MetricSettings
    from translate.text.corpus import read_lines

    unknown = [name for name in metric or [] if name not in METRICS]
    if unknown:
        raise UserError(f"--metric {unknown[0]}: choose from {', '.join(METRICS)}.")
    runs = [path for path in systems if path.is_dir()]
    sources, references, language = _test_set(runs, split, source, reference)
    files = {path: list(read_lines(path)) for path in systems if path not in runs}
    for path, lines in files.items():  # before any run has to translate
        check_lines(str(path), lines, references)
    named = [(str(path), files.get(path) or _translations(path, sources, device)) for path in systems]
    settings = MetricSettings(language, tokenize)
    chosen = list(dict.fromkeys(metric)) if metric else METRICS
    comparison = compare(named, references, settings, chosen, samples, trials, changed)
    if as_json:
        print(json.dumps(comparison.as_json()))
        return
    _print(comparison)
    _print_changes(comparison, dict(named), sources, references)


def _test_set(
    runs: Sequence[Path], split: str, source: Path | None, reference: list[Path] | None
) -> tuple[list[str] | None, list[list[str]], str]:
    """Sources if they are known, references, and the target language if there is a run."""
    from translate.errors import DataError, UserError
    from translate.evaluation.evaluate import read_test_set, run_split_files
    from translate.run.directory import Run
    from translate.text.corpus import read_lines

    directions = {run: Run.open(run).config().data.direction for run in runs}
    language = directions[runs[0]][1] if runs else ""
    for other in runs[1:]:
        if directions[other] == directions[runs[0]][::-1]:
            ours, theirs = (" → ".join(directions[run]) for run in (runs[0], other))
            raise UserError(f"{runs[0]} translates {ours}, {other} {theirs}: their translations cannot be compared.")
    if reference:
        if source is not None:
            return *read_test_set(source, reference)[:2], language
        if runs:
            raise UserError("--reference without --source: runs need the sentences to translate. Give both or neither.")
        return None, [list(read_lines(path)) for path in reference], language
    if source is not None:
        raise UserError("--source without --reference: give both, or neither for the runs' own data.")
    if not runs:
        raise UserError("Files of translations need --reference, the reference translations.")
    first = run_split_files(runs[0], split)
    for other in runs[1:]:
        if any(a.read_bytes() != b.read_bytes() for a, b in zip(first, run_split_files(other, split), strict=True)):
            raise DataError(
                f"{runs[0]} and {other} have different {split} data. Give one test set by --source and --reference."
            )
    return *read_test_set(first[0], [first[1]])[:2], language


def _translations(path: Path, sources: list[str] | None, device: str) -> list[str]:
    """A run's translations of the sources, from its cache if they are in it."""
    from translate.cli.options import load_translator
    from translate.evaluation.translation_cache import translate_cached

    assert sources is not None
    kept = translate_cached(path, load_translator(path, None, device), sources)
    return [translation.text for translation in kept.translations]


def _print(comparison: Comparison) -> None:
    from rich.cells import cell_len

    width = max(cell_len(name) for name in comparison.systems)
    for metric, rows in comparison.scores.items():
        print(f"{NAMES[metric]:<{width}}   score  95 % interval     p, bootstrap  p, randomisation")
        for name, row in zip(comparison.systems, rows, strict=True):
            high = row.mean + row.interval  # a symmetric interval may reach beyond the ends of the scale
            high = high if metric == "ter" else min(100.0, high)
            interval = f"[{max(0.0, row.mean - row.interval):.2f}, {high:.2f}]"
            chances = "      baseline"
            if row.bootstrap is not None and row.randomisation is not None:
                chances = (
                    f"{row.bootstrap:12.4f}  {row.randomisation:16.4f}{_verdict(row.bootstrap, row.randomisation)}"
                )
            print(f"{name:<{width}}  {row.score:6.2f}  {interval:<16}  {chances}")
        print(f"{comparison.signatures[metric]}\n")
    print(f"{comparison.sentences} sentences; * both tests give less than 0.05")


def _verdict(*chances: float) -> str:
    return " *" if max(chances) < 0.05 else ""


def _print_changes(
    comparison: Comparison, lines: dict[str, list[str]], sources: list[str] | None, references: list[list[str]]
) -> None:
    from translate.figures.labels import visible

    baseline = comparison.systems[0]
    for name, changes in comparison.changes.items():
        if changes:
            print(f"\nSentences that changed most from {baseline} to {name}, by chrF:")
        for change in changes:
            row = change.line - 1
            print(f"\nline {change.line}: {change.baseline:.1f} to {change.system:.1f} ({change.change:+.1f})")
            shown = [("source", sources[row])] if sources is not None else []
            shown += [("reference", references[0][row]), (baseline, lines[baseline][row]), (name, lines[name][row])]
            width = max(len(title) for title, _ in shown)
            for title, text in shown:
                print(f"  {title:<{width}}  {visible(text)}")
