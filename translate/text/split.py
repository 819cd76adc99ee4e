"""Split a corpus into training, validation and test: without duplicate pairs, without held-out sources in training."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from translate.errors import DataError
from translate.text.corpus import Pair, parallel_files, tidy

LEAST_TO_SPLIT = 100
FEWEST_HELD_OUT, MOST_HELD_OUT, HELD_OUT_SHARE = 20, 1000, 0.02


@dataclass(frozen=True)
class Split:
    """Pairs for training, validation and test."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    num_duplicates: int


def split_corpus(source: Path, target: Path, num_valid: int | None, num_test: int | None, seed: int = 1) -> Split:
    """Read both files once and divide them."""
    pairs = list(parallel_files(source, target).pairs())
    if len(pairs) < LEAST_TO_SPLIT:
        raise DataError(
            f"{source} and {target} have {len(pairs)} lines: at least {LEAST_TO_SPLIT} pairs are needed to learn from."
        )
    distinct = list(dict.fromkeys(pairs))
    by_source: dict[str, list[Pair]] = {}
    for pair in distinct:
        by_source.setdefault(pair.source, []).append(pair)
    # All pairs of a source are held out together, and only if no side is empty.
    candidates = [text for text, group in by_source.items() if all(tidy(side).strip() for p in group for side in p)]
    random.Random(seed).shuffle(candidates)
    default = min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, int(HELD_OUT_SHARE * len(distinct))))
    wanted = [default if number is None else number for number in (num_test, num_valid)]
    if sum(wanted) > len(candidates) // 2:
        raise DataError(
            f"{source} and {target} have {len(candidates)} different sentences; {sum(wanted)} of them for validation "
            "and test would leave too few to learn from. Give more text, or smaller --valid and --test."
        )
    held_out = [_take(candidates, by_source, number) for number in wanted]
    train = [pair for group in by_source.values() for pair in group]
    return Split(train, held_out[1], held_out[0], len(pairs) - len(distinct))


def _take(candidates: list[str], by_source: dict[str, list[Pair]], number: int) -> list[Pair]:
    """Move whole groups of pairs with one source out of `by_source` until there are `number` pairs."""
    taken: list[Pair] = []
    while len(taken) < number and candidates:
        group = by_source.pop(candidates.pop())
        taken += group[: number - len(taken)]
    return taken
