"""Measure the way from a corpus file to the first batches, for corpora of several sizes.

    python scripts/bench_data.py [--sizes 10000,100000,1000000] [--work DIR] [--repeats N] [--json]

The text is generated: two made-up languages whose words are built of syllables and endings, follow Zipf's law, and move
about between the two sides. Each stage (learn the tokenizer, prepare the pairs, order and collate batches) runs in a
process of its own. Its peak of resident memory is the operating system's figure (getrusage, ru_maxrss), with the
interpreter, all libraries and the pages of memory-mapped files. The stages start no processes, only threads.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANGUAGES = ("xa", "xb")
SEED = 1
NUM_STEMS = 12_000
BLOCK = 10_000  # pairs generated at once
NUM_BATCHES = 200
MOST_MEMORY, MOST_TIME = 1.5, 1.2  # the largest corpus beside the one before it

SYLLABLES = (
    [
        a + b
        for a in ("b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "w")
        for b in "aeiou"
    ],
    [a + b for a in ("b", "ch", "d", "g", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z") for b in "aeioué"],
)
ENDINGS = (("", "s", "ed", "ing", "ly"), ("", "en", "té", "ons", "ment"))


# -- the text ---------------------------------------------------------------------------------------------------------


def words_of(side: int) -> list[str]:
    """The words of a language, the most frequent and shortest first."""
    generator = random.Random(SEED + side)
    stems: dict[str, None] = {}
    while len(stems) < NUM_STEMS:
        syllables = 1 + int(math.log(len(stems) + 1, 12))
        stems["".join(generator.choices(SYLLABLES[side], k=syllables)) + generator.choice("lmnrst")] = None
    return [stem + ending for ending in ENDINGS[side] for stem in stems]


def generate(num_pairs: int) -> Iterator[tuple[list[str], list[str]]]:
    """Blocks of sentences and of their translations; a smaller corpus is the beginning of a larger one."""
    languages = [words_of(side) for side in range(2)]
    # Zipf's law over the stems, and each ending a third as frequent as the one before.
    rank = np.arange(NUM_STEMS)
    chances = np.concatenate([1 / (rank + 2.7) / 3**ending for ending in range(len(ENDINGS[0]))])
    bounds = np.cumsum(chances / chances.sum())
    generator = np.random.default_rng(SEED)
    for begin in range(0, num_pairs, BLOCK):
        lengths = np.clip(generator.lognormal(2.7, 0.6, BLOCK), 1, 90).astype(np.int64)
        sentence = np.repeat(np.arange(BLOCK), lengths)
        source = np.minimum(np.searchsorted(bounds, generator.random(len(sentence))), len(bounds) - 1)
        numbers = np.flatnonzero(generator.random(len(sentence)) < 0.01)
        # In the translation a word moves by up to two places.
        moved = np.lexsort((np.arange(len(sentence)) + generator.uniform(0, 3, len(sentence)), sentence))
        spelt = {int(place): str(int(10 ** generator.uniform(0, 5))) for place in numbers}
        count = min(BLOCK, num_pairs - begin)
        yield (
            _sentences(languages[0], source, np.arange(len(source)), spelt, lengths[:count]),
            _sentences(languages[1], source, moved, spelt, lengths[:count]),
        )


def _sentences(
    words: list[str],
    ids: NDArray[np.int64],
    order: NDArray[np.int64],
    spelt: dict[int, str],
    lengths: NDArray[np.int64],
) -> list[str]:
    text = [words[index] for index in ids[order].tolist()]
    for place in np.flatnonzero(np.isin(order, list(spelt))).tolist():
        text[place] = spelt[int(order[place])]
    ends = lengths.cumsum().tolist()
    return [" ".join(text[begin:end]).capitalize() + "." for begin, end in zip([0, *ends], ends, strict=False)]


def write_corpus(folder: Path, num_pairs: int) -> None:
    """Write train.xa and train.xb."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"train.{language}" for language in LANGUAGES]
    with paths[0].open("w", encoding="utf-8") as source, paths[1].open("w", encoding="utf-8") as target:
        for block in generate(num_pairs):
            for file, lines in zip((source, target), block, strict=True):
                file.writelines(line + "\n" for line in lines)


# -- the stages, each in a process of its own -------------------------------------------------------------------------


def learn(folder: Path) -> dict[str, float]:
    from translate.config import TokenizerConfig
    from translate.text.corpus import find_corpus
    from translate.text.tokenizer import train_tokenizer

    corpus = find_corpus(_data(folder), "train")
    start = time.perf_counter()
    model = train_tokenizer((side for pair in corpus.pairs() for side in pair), TokenizerConfig(), SEED, _silent)
    seconds = time.perf_counter() - start
    (folder / "tokenizer.model").write_bytes(model)
    return {"seconds": seconds}


def prepare(folder: Path) -> dict[str, float]:
    from translate.data.dataset import content_key, prepare
    from translate.text.corpus import find_corpus
    from translate.text.tokenizer import Tokenizer

    data = _data(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    start = time.perf_counter()
    corpus = find_corpus(data, "train")
    key = content_key(corpus.fingerprint(), tokenizer, tokenizer, data)
    report = prepare(corpus, tokenizer, tokenizer, data, folder / "train.arrow", key)
    return {"seconds": time.perf_counter() - start, "kept": report.kept}


def batches(folder: Path) -> dict[str, float]:
    from translate.config import TrainConfig
    from translate.data.batches import BatchOrder, BatchStream
    from translate.data.dataset import PairDataset

    start = time.perf_counter()
    pairs = PairDataset(folder / "train.arrow")
    opened = time.perf_counter()
    order = BatchOrder(pairs.src_lengths, pairs.tgt_lengths, TrainConfig(steps=1).batch_tokens, SEED)
    order.epoch(0)
    ordered = time.perf_counter()
    stream = BatchStream(pairs, order)
    next(stream)
    first = time.perf_counter()
    for _ in range(NUM_BATCHES - 1):
        next(stream)
    seconds = time.perf_counter() - first
    stream.close()
    return {"open_seconds": opened - start, "order_seconds": ordered - opened, "seconds": seconds}


STAGES: dict[str, Callable[[Path], dict[str, float]]] = {"learn": learn, "prepare": prepare, "batches": batches}


def _data(folder: Path) -> Any:
    from translate.config import DataConfig

    return DataConfig(folder=str(folder), source_lang=LANGUAGES[0], target_lang=LANGUAGES[1])


def _silent(_: str) -> None:
    pass


def run_stage(stage: str, folder: Path) -> dict[str, float]:
    """A stage in a fresh process: what it returns, and its peak of memory in megabytes."""
    command = [sys.executable, __file__, "--stage", stage, "--work", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _peak() -> float:
    """Megabytes; Linux counts in kilobytes, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


# -- the figures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What one size of corpus takes; memory is in megabytes."""

    pairs: int
    generate_seconds: float
    learn_seconds: float
    learn_memory: float
    prepare_seconds: float
    """The median of the repeats."""
    prepare_memory: float
    order_seconds: float
    batches_seconds: float
    """From the first batch to the 200th."""
    batches_memory: float

    @property
    def pairs_per_second(self) -> float:
        return self.pairs / self.prepare_seconds

    def microseconds(self, stage: str) -> float:
        """The time per pair."""
        seconds: float = getattr(self, f"{stage}_seconds")
        return seconds / self.pairs * 1e6


def measure(num_pairs: int, folder: Path, repeats: int) -> Row:
    """Generate a corpus and take it through all stages."""
    start = time.perf_counter()
    write_corpus(folder, num_pairs)
    generated = time.perf_counter() - start
    learnt = run_stage("learn", folder)
    prepared = [run_stage("prepare", folder) for _ in range(repeats)]
    batched = run_stage("batches", folder)
    return Row(
        pairs=num_pairs,
        generate_seconds=generated,
        learn_seconds=learnt["seconds"],
        learn_memory=learnt["memory"],
        prepare_seconds=statistics.median(result["seconds"] for result in prepared),
        prepare_memory=max(result["memory"] for result in prepared),
        order_seconds=batched["order_seconds"],
        batches_seconds=batched["seconds"],
        batches_memory=batched["memory"],
    )


def ratios(before: Row, after: Row) -> dict[str, float]:
    """How much more memory, and how much more time per pair, the second takes."""
    memory = {stage: f"{stage}_memory" for stage in STAGES}
    found = {name: getattr(after, name) / getattr(before, name) for name in memory.values()}
    return found | {
        f"{stage}_time_per_pair": after.microseconds(stage) / before.microseconds(stage)
        for stage in ("learn", "prepare", "order")
    }


def table(rows: Sequence[Row]) -> str:
    """The figures for people."""
    heads = ("pairs", "learn s", "MB", "prepare s", "pairs/s", "µs/pair", "MB", "order s", "200 batches s", "MB")
    cells = [
        (
            f"{row.pairs:,}",
            f"{row.learn_seconds:.1f}",
            f"{row.learn_memory:.0f}",
            f"{row.prepare_seconds:.2f}",
            f"{row.pairs_per_second:,.0f}",
            f"{row.microseconds('prepare'):.1f}",
            f"{row.prepare_memory:.0f}",
            f"{row.order_seconds:.2f}",
            f"{row.batches_seconds:.2f}",
            f"{row.batches_memory:.0f}",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in (heads, *cells)]
    return "\n".join(lines)


def verdict(before: Row, after: Row) -> str:
    """The two largest corpora side by side, stage by stage."""
    found = ratios(before, after)
    return "\n".join(
        (
            f"{after.pairs:,} pairs beside {before.pairs:,}:",
            f"  prepare: peak memory {found['prepare_memory']:.2f} x (at most {MOST_MEMORY}), "
            f"time per pair {found['prepare_time_per_pair']:.2f} x (at most {MOST_TIME})",
            f"  learn:   peak memory {found['learn_memory']:.2f} x, time per pair {found['learn_time_per_pair']:.2f} x",
            f"  batches: peak memory {found['batches_memory']:.2f} x, "
            f"time per pair of the order {found['order_time_per_pair']:.2f} x",
        )
    )


def sizes_of(text: str) -> list[int]:
    """Different positive numbers, smallest first."""
    sizes = sorted({int(part) for part in text.split(",")})
    if sizes[0] < 100:
        raise argparse.ArgumentTypeError(f"{sizes[0]} is less than 100: too few pairs to learn a tokenizer from")
    return sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all sizes, or one stage of one."""
    parser = argparse.ArgumentParser(description="Measure tokenizer training, preparation and batches by corpus size.")
    parser.add_argument("--sizes", type=sizes_of, default="10000,100000,1000000", help="pairs (%(default)s)")
    parser.add_argument("--work", type=Path, help="folder to keep the files in; a temporary one if left out")
    parser.add_argument("--repeats", type=int, default=3, help="preparations, whose median counts (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.stage:
        result = STAGES[given.stage](given.work)
        print(json.dumps(result | {"memory": _peak()}))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        for size in given.sizes:
            rows.append(measure(size, (given.work or Path(temporary)) / str(size), max(1, given.repeats)))
            print(f"{size:,} pairs measured.", file=sys.stderr)
    if given.json:
        figures: dict[str, Any] = {"rows": [asdict(row) | {"pairs_per_second": row.pairs_per_second} for row in rows]}
        print(json.dumps(figures | ({"ratios": ratios(*rows[-2:])} if len(rows) > 1 else {}), indent=1))
        return 0
    print(table(rows))
    if len(rows) > 1:
        print(verdict(*rows[-2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
