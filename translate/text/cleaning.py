"""A cleaned copy of a parallel corpus: named rules, each with a count; the input is never changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from translate.errors import DataError
from translate.text.clean import FAULTS, REPAIRED, Fault, Norms
from translate.text.corpus import Corpus, has_breaks, tidy
from translate.text.inspection import HeldOut, judge, measure


@dataclass(frozen=True)
class CleanReport:
    """How many pairs were read and written, how many each rule left out, and how many were repaired."""

    read: int
    written: int
    left_out: dict[Fault, int]
    """By the first rule that matches, so that the counts add up."""
    repaired: dict[Fault, int]


def clean(
    corpus: Corpus, files: tuple[Path, Path], rules: Sequence[Fault], limits: Norms, held_out: Sequence[HeldOut] = ()
) -> CleanReport:
    """Write the pairs that match no rule as two plain files, which must not exist yet."""
    refuse_existing(files)
    judgement = judge(corpus, measure(corpus, limits).norms, held_out)
    kept = np.ones(len(judgement.bits), dtype=bool)
    left_out: dict[Fault, int] = {}
    for rule in FAULTS:
        if rule in rules and rule not in REPAIRED:
            rows = judgement.lines_with(rule) - 1
            left_out[rule] = int(kept[rows].sum())
            kept[rows] = False
    repairing = "control characters" in rules
    repaired = 0
    # Written under temporary names, so that an incomplete copy never looks complete.
    unfinished = [path.with_name(f".tmp-{path.name}") for path in files]
    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            outputs = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in unfinished]
            for keep, pair in zip(kept.tolist(), corpus.pairs(), strict=True):
                if not keep:
                    continue
                if repairing and any(map(has_breaks, pair)):
                    repaired += 1
                for output, side in zip(outputs, pair, strict=True):
                    output.write((tidy(side).strip(" ") if repairing else _one_line(side)) + "\n")
        for path, final in zip(unfinished, files, strict=True):
            path.replace(final)
    except OSError as error:
        raise DataError(f"{files[0].parent}: cannot be written: {error.strerror}.") from None
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return CleanReport(len(kept), int(kept.sum()), left_out, {"control characters": repaired} if repairing else {})


def refuse_existing(files: Sequence[Path]) -> None:
    """Refuse to overwrite a file: it might be the input."""
    for path in files:
        if path.exists():
            raise DataError(f"{path} already exists; nothing was written. Give another --output.")


def _one_line(text: str) -> str:
    """Replace newlines, which a JSON string may contain: they would split the line."""
    return text.replace("\r", " ").replace("\n", " ")
