"""Translate a test set with a run and score it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from translate.checkpoint import write_file
from translate.config import SearchConfig
from translate.decoding.translator import Translator
from translate.errors import DataError, RunError
from translate.evaluation.metrics import Evaluation, check_counts, evaluate
from translate.text.corpus import parallel_files


def read_pairs(source: Path, reference: Path, min_words: int = 0) -> tuple[list[str], list[str]]:
    """Both sides of a test set, or of its pairs with at least so many source words; unequal sides are refused."""
    pairs = [pair for pair in parallel_files(source, reference).pairs() if len(pair.source.split()) >= min_words]
    if not pairs:
        wanted = f"no sentence of at least {min_words} words" if min_words else "no sentence"
        raise DataError(f"{source} and {reference} have {wanted}: there is nothing to score.")
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def split_files(run: Path, split: str) -> tuple[Path, Path]:
    """The run's own copies of a split."""
    source, target = run / "data" / f"{split}.source", run / "data" / f"{split}.target"
    if not source.is_file() or not target.is_file():
        raise DataError(
            f"{run} has no '{split}' data of its own. Give files with --source and --reference, or a split it has: "
            f"{', '.join(sorted(path.stem for path in (run / 'data').glob('*.source'))) or 'none'}."
        )
    return source, target


def evaluate_lines(
    translator: Translator, sources: Sequence[str], references: Sequence[str], search: SearchConfig | None = None
) -> tuple[Evaluation, list[str]]:
    """The scores, and the translations that were scored."""
    check_counts(len(sources), len(references))
    start = time.perf_counter()
    hypotheses = [best[0].text for best in translator.translate(sources, search)]
    return evaluate(hypotheses, references, time.perf_counter() - start), hypotheses


def keep_translations(run: Path, name: str, hypotheses: Sequence[str], evaluation: Evaluation) -> None:
    """Write translations/NAME.txt and their scores beside it."""
    folder = run / "translations"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot be made: {error.strerror}.") from None
    write_file(folder / f"{name}.txt", "".join(line + "\n" for line in hypotheses).encode())
    write_file(folder / f"{name}.json", (json.dumps(evaluation.as_json(), indent=1) + "\n").encode())
