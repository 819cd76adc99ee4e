"""Whether one commit is slower than another: training and search by both command lines, in alternation.

    python scripts/bench_pair.py OLD NEW --data FOLDER [--pairs 8] [--only TEXT] [--vocabulary 8000] [--json]

OLD and NEW are folders that hold a checkout, or revisions of this repository, for which a worktree is made for a while.
FOLDER holds train.L1 and train.L2. Each commit is driven through `python -m translate` alone, on all cores.

OLD starts a run of each model, which learns the vocabulary. Every figure of training comes from a copy of that run with
which a commit goes on by `--resume`, so that both have the same pieces, batches and weights: the tokens per second of
metrics.jsonl without the first updates. Search translates with one of these runs, and start-up is not in its figure. As
a model that has learnt nothing does not know when to stop, translations are as long as their sources.

In every other pair NEW comes first. The exit code is 1 where the geometric mean of all ratios of new to old speed is
below 0.98, or the median of a row below 0.95.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from checkouts import checked_out, environment_for, run_python, run_translate
from comparing import MemberFailed, at_least_one, last_word, machine

from translate.errors import UserError
from translate.run.directory import Run
from translate.text.corpus import read_lines

LEAST_MEAN, LEAST_MEDIAN = 0.98, 0.95
WIDTHS = {"embedding": 256, "encoder": 512, "attention": 512, "decoder": 512}
MODELS = {
    "bahdanau": ("model.decoder.kind=bahdanau",),
    "conditional": ("model.decoder.kind=conditional",),
    "luong": ("model.decoder.kind=luong", "model.attention.score=general", "model.decoder.input_feeding=false"),
    "heads": ("model.decoder.kind=bahdanau", "model.attention.score=scaled_dot", "model.attention.heads=4"),
}
SEARCH_MODEL, BEAMS = "bahdanau", {"greedy": 1, "beam 5": 5}
LENGTHS = ("search.min_ratio=1.0", "search.length_ratio=1.0", "search.length_extra=2")
NUM_WINDOWS, WINDOW = 6, 4  # what is measured of a run, in updates; one window more goes before, to warm up
NUM_VALID, NUM_LINES = 16, 1000
# The command answers this many lines of a file together: the clock starts with the answers to as many short ones.
FIRST_LINES = 1000

CONFIG = """
[data]
folder = "data"
source_lang = "{source}"
target_lang = "{target}"

[tokenizer]
vocabulary = {vocabulary}

[train]
steps = {steps}
device = "cpu"
batch_tokens = 960
valid_every = 1000000

[logging]
every = {window}
tensorboard = false
pictures = false
samples = 0
"""


@dataclass(frozen=True)
class Measure:
    """A row of the table, and how its figure is taken with the code of a checkout."""

    name: str
    unit: str
    take: Callable[[Path], float]


@dataclass(frozen=True)
class Row:
    """The figures of both commits, pair by pair."""

    name: str
    unit: str
    old: list[float]
    new: list[float]

    @property
    def ratios(self) -> list[float]:
        return [new / old for old, new in zip(self.old, self.new, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)


# -- what is measured --------------------------------------------------------------------------------------------------


def write_project(data: Path, vocabulary: int, folder: Path) -> None:
    """Write the configuration, its corpus, and the lines to translate, after the short ones."""
    files = sorted(data.glob("train.*"))
    if len(files) != 2:
        raise UserError(f"{data} must hold train.L1 and train.L2, and nothing else called train; it has {len(files)}.")
    (folder / "data").mkdir()
    for file in files:
        shutil.copyfile(file, folder / "data" / file.name)
        some = "".join(f"{line}\n" for line in islice(read_lines(file), NUM_VALID))
        (folder / "data" / f"valid{file.suffix}").write_text(some, encoding="utf-8")
    lines = ["a"] * FIRST_LINES + list(islice(read_lines(files[0]), NUM_LINES))
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    source, target = (file.suffix[1:] for file in files)
    text = CONFIG.format(source=source, target=target, vocabulary=vocabulary, steps=WINDOW, window=WINDOW)
    widths = "".join(f"\n[model.{section}]\nwidth = {width}\n" for section, width in WIDTHS.items())
    (folder / "config.toml").write_text(text + widths, encoding="utf-8")


def start_run(checkout: Path, folder: Path, model: str, vocabulary: int) -> None:
    """Train the first updates of the run that both commits go on with."""
    run = folder / model
    run_translate(checkout, folder, "train", "config.toml", *MODELS[model], "--run", run, "--no-test")
    found = Run.open(run).tokenizers()[0].size
    if found != vocabulary:
        raise UserError(f"The text yields {found} pieces, not {vocabulary}. Give a larger corpus, or --vocabulary.")


def training_speed(checkout: Path, folder: Path, model: str) -> float:
    """Tokens per second of going on with a copy of a run, without the first window."""
    copy = folder / "copy"
    shutil.copytree(folder / model, copy)
    try:
        settings = (*MODELS[model], f"train.steps={WINDOW * (2 + NUM_WINDOWS)}")
        run_translate(checkout, folder, "train", "config.toml", *settings, "--run", copy, "--resume", "--no-test")
        return read_speed(copy / "metrics.jsonl")
    finally:
        shutil.rmtree(copy)


def read_speed(metrics: Path) -> float:
    """The mean over the windows that are measured, each of about as many tokens."""
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").split("\n") if line]
    speeds = [record["tokens_per_second"] for record in records if record["kind"] == "train"]
    assert len(speeds) == 2 + NUM_WINDOWS, f"{metrics} has {len(speeds)} windows"
    return statistics.harmonic_mean(speeds[2:])


def search_speed(checkout: Path, folder: Path, beam: int) -> float:
    """Lines per second after the answers to the short ones."""
    settings = [word for setting in LENGTHS for word in ("--set", setting)]
    arguments = ["text", str(folder / SEARCH_MODEL), "lines.txt", "--beam", str(beam), "--device", "cpu", *settings]
    log, count = folder / "search.log", 0
    begin = end = time.monotonic()
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "translate", *arguments],
            cwd=folder,
            env=environment_for(checkout),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout is not None
        for count, _ in enumerate(process.stdout, 1):
            end = time.monotonic()
            if count == FIRST_LINES:
                begin = end
    if process.returncode:
        reason = last_word(log.read_text(encoding="utf-8", errors="replace"))
        raise MemberFailed(f"{checkout}: text: {reason or f'ended with {process.returncode}'}")
    return (count - FIRST_LINES) / (end - begin)


def all_measures(folder: Path) -> list[Measure]:
    """The rows of the table."""
    training = [
        Measure(f"train {model}", "tokens/s", partial(training_speed, folder=folder, model=model)) for model in MODELS
    ]
    search = [
        Measure(f"search {name}", "lines/s", partial(search_speed, folder=folder, beam=beam))
        for name, beam in BEAMS.items()
    ]
    return [*training, *search]


def models_of(measures: Sequence[Measure]) -> list[str]:
    """The models that must be trained first for these rows."""
    names = {measure.name.partition(" ")[::2] for measure in measures}
    return [
        model
        for model in MODELS
        if ("train", model) in names or (model == SEARCH_MODEL and any(kind == "search" for kind, _ in names))
    ]


# -- comparison --------------------------------------------------------------------------------------------------------


def measure_pairs(
    sides: Mapping[str, Path], measures: Sequence[Measure], pairs: int, say: Callable[[str], None]
) -> list[Row]:
    """Measure all rows in `pairs` pairs; in every other pair the second side comes first."""
    rows = [Row(measure.name, measure.unit, [], []) for measure in measures]
    for pair in range(pairs):
        order = list(sides.items())[:: -1 if pair % 2 else 1]
        for measure, row in zip(measures, rows, strict=True):
            began = time.monotonic()
            for side, checkout in order:
                (row.old if side == "old" else row.new).append(measure.take(checkout))
            say(
                f"pair {pair + 1} of {pairs}: {row.name}: {row.old[-1]:,.1f} and {row.new[-1]:,.1f} {row.unit}, "
                f"ratio {row.ratios[-1]:.3f}, {time.monotonic() - began:.0f} s"
            )
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """What is printed of the rows, and whether the new commit is fast enough."""
    mean = statistics.geometric_mean([ratio for row in rows for ratio in row.ratios])
    lowest = min(row.median for row in rows)
    return {
        "rows": [
            {
                **asdict(row),
                "median_old": statistics.median(row.old),
                "median_new": statistics.median(row.new),
                "median_ratio": row.median,
                "lowest_ratio": min(row.ratios),
                "highest_ratio": max(row.ratios),
            }
            for row in rows
        ],
        "geometric_mean": mean,
        "lowest_median": lowest,
        "fast_enough": mean >= LEAST_MEAN and lowest >= LEAST_MEDIAN,
    }


def compare(old: Path, new: Path, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Prepare the runs and measure all rows that are asked for."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    measures = [measure for measure in all_measures(folder) if options.only in measure.name]
    if not measures:
        known = ", ".join(measure.name for measure in all_measures(folder))
        raise UserError(f"--only {options.only}: no row has this in its name. They are {known}.")
    write_project(options.data, options.vocabulary, folder)
    sides = {"old": old, "new": new}
    for checkout in sides.values():
        code = run_python(checkout, folder, "-c", "import translate; print(translate.__file__)").strip()
        assert Path(code).is_relative_to(checkout), f"{code} is not in {checkout}"
    for model in models_of(measures):
        began = time.monotonic()
        start_run(old, folder, model, options.vocabulary)
        say(f"first updates of {model}: {time.monotonic() - began:.0f} s")
    return summary(measure_pairs(sides, measures, options.pairs, say))


# -- the program -------------------------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """The result as text."""
    print(f"{result['machine']}; {result['pairs']} pairs of {result['old']} and {result['new']}")
    print(f"{'row':<20}{'old':>10}{'new':>10}  {'':<9}{'ratio':>7}  {'spread':>13}")
    for row in result["rows"]:
        spread = f"{row['lowest_ratio']:.3f} - {row['highest_ratio']:.3f}"
        print(
            f"{row['name']:<20}{row['median_old']:>10,.1f}{row['median_new']:>10,.1f}  {row['unit']:<9}"
            f"{row['median_ratio']:>7.3f}  {spread:>13}"
        )
    verdict = "fast enough" if result["fast_enough"] else "slower"
    print(
        f"geometric mean of all ratios {result['geometric_mean']:.3f} (at least {LEAST_MEAN}), "
        f"lowest median {result['lowest_median']:.3f} (at least {LEAST_MEDIAN}): {verdict}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="folder of a checkout, or a revision")
    parser.add_argument("new", help="the same")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="folder with train.L1 and train.L2")
    parser.add_argument("--pairs", type=at_least_one, default=8)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name has this text in it")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pair-") as temporary,
            checked_out(options.old) as old,
            checked_out(options.new) as new,
        ):
            compared = compare(old, new, options, Path(temporary).resolve())
    except (UserError, MemberFailed) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    result = {"old": options.old, "new": options.new, "machine": machine(), "pairs": options.pairs, **compared}
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return int(not result["fast_enough"])


if __name__ == "__main__":
    sys.exit(main())
