"""Translate a test set with a run and score it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from translate.decoding.translator import Translator
from translate.errors import DataError, RunError
from translate.evaluation.metrics import Evaluation, MetricSettings, check_counts, evaluate, reference_streams
from translate.evaluation.translation_cache import translate_cached
from translate.run.sealed_files import write_file
from translate.text.corpus import parallel_files, read_lines


def read_pairs(source: Path, reference: Path, min_words: int = 0) -> tuple[list[str], list[str]]:
    """Both sides of a test set, of its pairs with at least `min_words` source words; unequal sides are refused."""
    sources, (references,), _ = read_test_set(source, [reference], min_words)
    return sources, references


def read_test_set(
    source: Path, references: Sequence[Path], min_words: int = 0
) -> tuple[list[str], list[list[str]], list[int]]:
    """The source and every reference of a test set, and the number of each line; unequal sides are refused."""
    first = list(parallel_files(source, references[0]).pairs())
    streams = [[pair.target for pair in first], *(list(read_lines(path)) for path in references[1:])]
    for path, stream in zip(references[1:], streams[1:], strict=True):
        if len(stream) != len(first):
            raise DataError(
                f"{source} has {len(first)} lines, {path} {len(stream)}: line N of each must be the same sentence."
            )
    rows = [row for row, pair in enumerate(first) if len(pair.source.split()) >= min_words]
    if not rows:
        wanted = f"no sentence of at least {min_words} words" if min_words else "no sentence"
        raise DataError(f"{source} and {references[0]} have {wanted}: there is nothing to score.")
    lines = [row + 1 for row in rows]
    return [first[row].source for row in rows], [[stream[row] for row in rows] for stream in streams], lines


def run_split_files(run: Path, split: str) -> tuple[Path, Path]:
    """The run's own copies of a split."""
    source, target = run / "data" / f"{split}.source", run / "data" / f"{split}.target"
    if not source.is_file() or not target.is_file():
        raise DataError(
            f"{run} has no '{split}' data of its own. Give files with --source and --reference, or a split it has: "
            f"{', '.join(sorted(path.stem for path in (run / 'data').glob('*.source'))) or 'none'}."
        )
    return source, target


def evaluate_lines(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    settings: MetricSettings | None = None,
    run: Path | None = None,
    fresh: bool = False,
) -> tuple[Evaluation, list[str]]:
    """The scores, and the translations that were scored; translations in the run's cache are reused."""
    for stream in reference_streams(references):
        check_counts(len(sources), len(stream))
    if run is None:
        start = time.perf_counter()
        hypotheses = [best[0].text for best in translator.translate(sources)]
        seconds = time.perf_counter() - start
    else:
        kept = translate_cached(run, translator, sources, fresh)
        hypotheses, seconds = [translation.text for translation in kept.translations], kept.seconds
    return evaluate(hypotheses, references, seconds, settings), hypotheses


def keep_translations(run: Path, name: str, hypotheses: Sequence[str], evaluation: Evaluation) -> None:
    """Write translations/NAME.txt, and the scores to NAME.json."""
    folder = run / "translations"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot be made: {error.strerror}.") from None
    write_file(folder / f"{name}.txt", "".join(line + "\n" for line in hypotheses).encode())
    write_file(folder / f"{name}.json", (json.dumps(evaluation.as_json(), indent=1) + "\n").encode())
