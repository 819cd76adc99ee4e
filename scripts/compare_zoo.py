"""Train the members of the zoo on data/demo with the same number of updates, and write docs/zoo.md about them.

    python scripts/compare_zoo.py [--steps N] [--jobs N] [--work DIR] [--output DIR] [--only NAME ...]

The page is written again after each member, and a second call goes on where the first was stopped. Training and
measuring go through the command line, so that every number can be had by hand as well.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache, reduce
from pathlib import Path
from typing import Any

from comparing import (
    ROOT,
    Commands,
    Failure,
    as_program,
    at_least_one,
    commit_now,
    distinct,
    is_other_run,
    machine,
    make_all,
    plain,
)

from translate.cli.zoo import zoo
from translate.config import load_config
from translate.config.members import DECODERS, ENCODERS
from translate.config.members import MEMBERS as TABLES
from translate.errors import UserError
from translate.run.sealed_files import write_file

Overrides = dict[str, tuple[str, ...]]  # by the name of a member

CONFIG = ROOT / "configs" / "demo.toml"
TEST = ROOT / "data" / "demo"

ENCODER_WIDTH = 128
# What all members share, beside the schedule below: one thread, a short update, no more output than is read.
COMMON = (
    f"model.encoder.width={ENCODER_WIDTH}",
    "train.threads=1",
    "train.device=cpu",
    "train.batch_tokens=1000",
    "train.learning_rate=3e-3",
    "train.keep_last=1",
    "logging.every=10",
    "logging.samples=0",
    "logging.tensorboard=false",
    "logging.pictures=false",
)

BASELINE = "bahdanau"
LUONG = ("model.decoder.kind=luong", "model.attention.score=general")


def as_wide(kind: str) -> tuple[str, ...]:
    """What makes the memory of an encoder as wide as the baseline's."""
    multiple = load_config(CONFIG).model.encoder.output_width // load_config(CONFIG).model.encoder.width
    width = ENCODER_WIDTH * multiple // ENCODERS[kind].width_multiple
    return (f"model.encoder.width={width}",) if width != ENCODER_WIDTH else ()


def scored(kind: str) -> tuple[str, ...]:
    """What gives a decoder a score that it works with."""
    scores = DECODERS[kind].scores
    return () if scores is None else (f"model.attention.score={scores[0]}",)


def each(setting: str, prefix: str = "", also: Callable[[str], tuple[str, ...]] = lambda _: ()) -> Overrides:
    """Every member of a family but the baseline's, with what else it needs."""
    baseline: Any = reduce(getattr, setting.split("."), load_config(CONFIG).model)
    members = [name for name in TABLES[setting] if name != baseline]
    return {f"{prefix}{name}": (f"model.{setting}={name}", *also(name)) for name in members}


# By what they vary: name -> overrides of the baseline, which is configs/demo.toml with COMMON.
GROUPS: dict[str, Overrides] = {
    "Baseline": {BASELINE: ()},
    "Encoders": {
        **each("encoder.kind", also=as_wide),
        "gru-reverse": ("model.encoder.kind=gru", *as_wide("gru"), "model.encoder.reverse=true"),
        "residual": ("model.encoder.layers=2", "model.encoder.residual=true"),
        "self-attention": ("model.encoder.self_attention=true",),
    },
    "Summaries": each("encoder.summary", prefix="summary-"),
    "Decoders": {
        **each("decoder.kind", also=scored),
        "luong": LUONG,
        "luong-unfed": (*LUONG, "model.decoder.input_feeding=false"),
        "decoder-lstm": ("model.decoder.cell=lstm",),
        "decoder-layers": ("model.decoder.layers=2",),
    },
    "Scores": each("attention.score"),
    "Scopes": each("attention.scope"),
    "Selections": each("attention.selection"),
    "More of attention": {
        "heads": ("model.attention.heads=4",),
        "hops": ("model.attention.hops=2",),
        "per_feature": ("model.attention.per_feature=true",),
        "coverage": ("model.attention.coverage=true",),
        "copy": ("model.decoder.copy=true",),
    },
    "Regularisation": {
        "layer_norm": ("model.encoder.layer_norm=true", "model.decoder.layer_norm=true"),
        "variational": ("model.encoder.variational=true", "model.decoder.variational=true"),
        "word_dropout": ("model.encoder.word_dropout=0.1", "model.decoder.word_dropout=0.1"),
        "ema": ("train.ema=0.99",),
    },
}
MEMBERS = {name: overrides for group in GROUPS.values() for name, overrides in group.items()}

LONG = 13  # words: "over 12"
SENTENCE = 170  # of the test set, drawn for all: adjectives change places with their nouns, two at once, and a negation
PICTURE_WIDTH = 480  # pixels in the file
SHOWN_WIDTH, SHOWN_IN_A_ROW = 210, 4  # on the page

BEGIN, END = "<!-- text -->", "<!-- end of text -->"
NO_TEXT = "\n*To be written once the table is complete.*\n"


@dataclass(frozen=True)
class Row:
    """What is known of one member: WORK/NAME/zoo.json."""

    settings: list[str]
    """The overrides it was trained with, all of them."""
    bleu: float
    bleu_margin: float
    """Half of the 95 % interval."""
    bleu_long: float
    bleu_long_margin: float
    num_long: int
    bleu_third: float | None
    aer: float | None
    parameters: int
    tokens_per_second: float
    minutes: float
    signature: str
    commit: str
    machine: str
    jobs: int
    day: str


Outcome = Row | Failure


# -- what is trained --------------------------------------------------------------------------------------------------


def third_of(steps: int) -> int:
    """Updates between validations: rounded up, so that there are three and no fourth."""
    return math.ceil(steps / 3)


def schedule(steps: int) -> tuple[str, ...]:
    """Length and learning rate, the same for all: warm-up over an eighth as in configs/demo.toml, then a cosine."""
    return (
        f"train.steps={steps}",
        "train.schedule=cosine",
        f"train.warmup={steps // 8}",
        f"train.valid_every={third_of(steps)}",
    )


def settings_of(name: str, steps: int) -> list[str]:
    """All overrides of a member."""
    return [*COMMON, *schedule(steps), *MEMBERS[name]]


def not_covered(members: Mapping[str, Sequence[str]], tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the tables of `translate zoo` offer and no member takes, as `setting=name`."""
    covered = set()
    for overrides in members.values():
        config = load_config(CONFIG, overrides)
        for setting in tables:
            if setting.startswith("model.attention.") and not config.model.attends:
                continue  # it has a score in its settings and none in its network
            covered.add(f"{setting}={reduce(getattr, setting.split('.'), config)}")
    return [
        f"{setting}={name}" for setting, table in tables.items() for name in table if f"{setting}={name}" not in covered
    ]


# -- what is kept -----------------------------------------------------------------------------------------------------


def picture_of(run: Path) -> Path:
    """Where `translate align` draws the sentence."""
    return run / "alignment" / f"{SENTENCE}.png"


def read_row(run: Path, settings: Sequence[str]) -> Row | None:
    """The row of a finished member, if it was made with these settings and its picture is there."""
    try:
        row = Row(**json.loads((run / "zoo.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    complete = row.aer is None or picture_of(run).is_file()
    return row if complete and row.settings == list(settings) else None


def preserved_text(page: Path) -> str:
    """What was written by hand between the markers of the page."""
    if not page.exists():
        return NO_TEXT
    content = page.read_text(encoding="utf-8")
    _, begin, rest = content.partition(f"{BEGIN}\n")
    text, end, _ = rest.partition(END)
    if not begin or not end:
        raise UserError(
            f"{page} has no lines {BEGIN} and {END}: what was written there by hand would be lost. "
            "Put them around it, or move the file away."
        )
    return text


# -- training and measuring -------------------------------------------------------------------------------------------


def make_row(name: str, steps: int, jobs: int, work: Path, commands: Commands) -> Row:
    """Train a member, or go on with it, measure it, and keep its row."""
    run, log, settings = work / name, work / f"{name}.log", settings_of(name, steps)
    commit = commit_now()
    commands.run(log, "train", CONFIG, *settings, "--run", run, "--resume", "--no-test")
    measured = measure(run, log, third_of(steps), commands)
    row = Row(settings=settings, commit=commit, machine=machine(), jobs=jobs, day=date.today().isoformat(), **measured)
    write_file(run / "zoo.json", (json.dumps(asdict(row), indent=1) + "\n").encode())
    return row


def measure(run: Path, log: Path, third: int, commands: Commands) -> dict[str, Any]:
    """Everything in a row that is a result; the heat map is left in RUN/alignment."""
    files = ("--source", TEST / "test.en", "--reference", TEST / "test.fr")
    score = json.loads(commands.run(log, "evaluate", run, *files, "--json"))
    long = json.loads(commands.run(log, "evaluate", run, *files, "--min-words", str(LONG), "--json"))
    facts = json.loads(commands.run(log, "info", run, "--json"))
    aer = None
    if facts["attention"] != "none":
        sides = ("--source", TEST / "test.en", "--target", TEST / "test.fr")
        scores = json.loads(commands.run(log, "align", run, *sides, "--gold", TEST / "test.align", "--json"))
        aer = scores["aer"]
        commands.run(log, "align", run, *sides, "--lines", str(SENTENCE), "--format", "png")
    speed, bleu_third = read_metrics(run / "metrics.jsonl", third)
    return {
        "bleu": score["bleu"]["score"],
        "bleu_margin": (score["bleu"]["high"] - score["bleu"]["low"]) / 2,
        "bleu_long": long["bleu"]["score"],
        "bleu_long_margin": (long["bleu"]["high"] - long["bleu"]["low"]) / 2,
        "num_long": long["sentences"],
        "bleu_third": bleu_third,
        "aer": aer,
        "parameters": facts["parameters"],
        "tokens_per_second": speed,
        "minutes": facts["training_minutes"],
        "signature": score["bleu"]["signature"],
    }


def read_metrics(path: Path, third: int) -> tuple[float, float | None]:
    """Mean of the target tokens a second, and the validation BLEU after a third of the updates."""
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    speeds = [record["tokens_per_second"] for record in records if record["kind"] == "train"]
    thirds = [record["bleu"] for record in records if record["kind"] == "valid" and record["step"] == third]
    return statistics.fmean(speeds) if speeds else 0.0, thirds[-1] if thirds else None


def publish_heatmap(drawn: Path, published: Path) -> None:
    """A small copy of a heat map: fewer pixels and colours, because the repository keeps one for each member."""
    from PIL import Image  # comes with matplotlib

    with Image.open(drawn) as picture:
        height = round(picture.height * PICTURE_WIDTH / picture.width)
        small = picture.convert("RGB").resize((PICTURE_WIDTH, height), Image.Resampling.LANCZOS)
    published.parent.mkdir(parents=True, exist_ok=True)
    # The other methods follow the colours that are frequent, and the dark cells, which matter, are few.
    palette = small.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(published, optimize=True)


# -- the page ---------------------------------------------------------------------------------------------------------

COLUMNS = ("member", "BLEU", "BLEU, over 12 words", "BLEU at a third", "AER", "parameters", "tokens/s", "minutes")


def render(outcomes: Mapping[str, Outcome], text: str, steps: int, jobs: int) -> str:
    """The whole page; `text` is what stands between the markers."""
    rows = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Row)}
    parts = [_head(list(rows.values()), steps, jobs), f"## What it shows\n\n{BEGIN}\n{text}{END}\n", "## The table\n"]
    for group, members in GROUPS.items():
        found = {name: outcomes[name] for name in members if name in outcomes}
        if found:
            parts.append(_table(group, found))
    missing = [name for name in MEMBERS if name not in outcomes]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    parts.append(_heatmaps([name for name in MEMBERS if name in rows and rows[name].aer is not None]))
    return "\n".join(parts)


def _head(rows: Sequence[Row], steps: int, jobs: int) -> str:
    long = distinct(str(row.num_long) for row in rows)
    together = distinct(str(row.jobs) for row in rows)
    signature = distinct(row.signature for row in rows)
    shared = shlex.join([*COMMON, *schedule(steps)])
    return f"""# The zoo compared

Every member is trained on `data/demo` for {steps} updates with the same seed, the same batches and the same learning
rates. `{BASELINE}` is `configs/demo.toml` with the settings for all members below; the others differ from it by what
their last column says and nothing else. The tables and the pictures are what this command wrote:

```sh
.venv/bin/python scripts/compare_zoo.py --steps {steps} --jobs {jobs}
```

| | |
|---|---|
| date | {distinct(row.day for row in rows)} |
| machine | {distinct(row.machine for row in rows)} |
| commit | {distinct(row.commit for row in rows)} |
| for all members | `{shared}` |

- **BLEU** is on the test set, with that of three checkpoints which is best on validation; `{signature}`.
  After it stands half of its 95 % interval, a bootstrap over the sentences. There is one run a member: what another
  seed would change comes on top. Over 12 words are {long} of the test sentences.
- **BLEU at a third** is on *validation* and greedy, after {third_of(steps)} updates.
- **AER** is the error rate of links read off the attention while the model is given the reference; lower is better.
- **tokens/s** are target tokens in training alone, on one thread. Members at once on the machine: {together}; so it
  compares members and is less than each would reach alone.
- **minutes** are of training with its three validations.
"""


def _table(group: str, outcomes: Mapping[str, Outcome]) -> str:
    lines = [f"### {group}\n", f"| {' | '.join(COLUMNS)} | changes |", "|---" + "|---:" * (len(COLUMNS) - 1) + "|---|"]
    for name, outcome in outcomes.items():
        if isinstance(outcome, Row):
            cells = _cells(name, outcome)
        else:
            cells = [name, f"failed: {plain(outcome.reason)}", *[""] * (len(COLUMNS) - 2)]
        changes = "<br>".join(f"`{override}`" for override in MEMBERS[name]) or "none"
        lines.append(f"| {' | '.join(cells)} | {changes} |")
    return "\n".join(lines) + "\n"


def _cells(name: str, row: Row) -> list[str]:
    return [
        name if row.aer is None else f"[{name}](zoo/{name}.png)",
        f"{row.bleu:.1f} ± {row.bleu_margin:.1f}",
        f"{row.bleu_long:.1f} ± {row.bleu_long_margin:.1f}",
        "—" if row.bleu_third is None else f"{row.bleu_third:.1f}",
        "—" if row.aer is None else f"{row.aer:.3f}",
        f"{row.parameters:,}",
        f"{row.tokens_per_second:,.0f}",
        f"{row.minutes:.1f}",
    ]


def _heatmaps(names: Sequence[str]) -> str:
    source, target = (_line_of_test(language) for language in ("en", "fr"))
    lines = [
        "## Where they look\n",
        f"Line {SENTENCE} of the test set for all, with its reference given: *{source}* – *{target}*.",
        "Source across, target down, dark is where the member looked.\n",
        "<table>",
    ]
    for begin in range(0, len(names), SHOWN_IN_A_ROW):
        cells = [
            f'<td align="center"><img src="zoo/{name}.png" width="{SHOWN_WIDTH}" alt="{name}"><br>{name}</td>'
            for name in names[begin : begin + SHOWN_IN_A_ROW]
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"]) + "\n"


@cache
def _line_of_test(language: str) -> str:
    return (TEST / f"test.{language}").read_text(encoding="utf-8").split("\n")[SENTENCE - 1]


# -- the whole --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One call of the script."""

    steps: int
    jobs: int
    work: Path
    output: Path

    @property
    def page(self) -> Path:
        return self.output / "zoo.md"

    def go(self, only: Sequence[str]) -> int:
        """Train and measure what is not known yet; 1 if a member failed."""
        self._refuse(only)
        self.work.mkdir(parents=True, exist_ok=True)
        outcomes: dict[str, Outcome] = {}
        for name in MEMBERS:
            row = read_row(self.work / name, settings_of(name, self.steps))
            if row is not None:
                self._add(outcomes, name, row)
        todo = [name for name in only if name not in outcomes]
        print(f"{len(only) - len(todo)} of {len(only)} members are known, {len(todo)} to train.", flush=True)
        self._train(todo, outcomes)
        self._write(outcomes)
        failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failure)]
        print(f"{self.page}: {len(outcomes)} rows" + f", failed: {', '.join(failed)}" * bool(failed))
        return 1 if failed else 0

    def _refuse(self, only: Sequence[str]) -> None:
        """Say before any training what would go wrong."""
        missing = not_covered(MEMBERS, zoo())
        if missing:
            raise UserError(f"No member of GROUPS in {Path(__file__).name} has {', '.join(missing)}. Add one for each.")
        preserved_text(self.page)
        others = [self.work / n for n in only if is_other_run(self.work / n, CONFIG, settings_of(n, self.steps))]
        if others:
            raise UserError(
                f"{len(others)} runs in {self.work} were made with other settings. "
                f"Give another --work, or remove them: rm -r {shlex.join(map(str, others))}"
            )

    def _train(self, todo: Sequence[str], outcomes: dict[str, Outcome]) -> None:
        def make(name: str, commands: Commands) -> Row:
            return make_row(name, self.steps, self.jobs, self.work, commands)

        def done(name: str, outcome: Outcome) -> None:
            self._add(outcomes, name, outcome)
            self._write(outcomes)
            print(_told(name, outcome), flush=True)

        make_all(todo, self.jobs, make, done)

    def _add(self, outcomes: dict[str, Outcome], name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if isinstance(outcome, Row) and outcome.aer is not None:
            publish_heatmap(picture_of(self.work / name), self.output / "zoo" / f"{name}.png")

    def _write(self, outcomes: Mapping[str, Outcome]) -> None:
        """Replace the page; the text is read at the last moment, for it may be edited meanwhile."""
        self.output.mkdir(parents=True, exist_ok=True)
        page = render(outcomes, preserved_text(self.page), self.steps, self.jobs)
        write_file(self.page, page.encode())


def _told(name: str, outcome: Outcome) -> str:
    if isinstance(outcome, Failure):
        return f"{name}: failed: {outcome.reason}"
    aer = "" if outcome.aer is None else f", AER {outcome.aer:.3f}"
    return f"{name}: BLEU {outcome.bleu:.1f}{aer}, {outcome.minutes:.1f} minutes"


@as_program
def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the members, or those that are named."""
    parser = argparse.ArgumentParser(description="Train the members of the zoo alike and write docs/zoo.md about them.")
    parser.add_argument("--steps", type=at_least_one, default=300, help="updates of each member (%(default)s)")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="members at once, a thread each (%(default)s)")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "zoo", help="folder of the runs (runs/zoo)")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of zoo.md and zoo/*.png (docs)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEMBERS, default=[*MEMBERS], help="some of them")
    given = parser.parse_args(arguments)
    comparison = Comparison(given.steps, given.jobs, given.work.absolute(), given.output.absolute())
    return comparison.go(list(dict.fromkeys(given.only)))


if __name__ == "__main__":
    sys.exit(main())
