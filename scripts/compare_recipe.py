"""Take each ingredient out of a recipe once, and write what that costs into docs/recipes.md.

    python scripts/compare_recipe.py FOLDER [--config FILE] [--minutes M] [--jobs N] [--work DIR] [--output DIR]
                                     [--only NAME ...]

FOLDER holds the recipe's corpus. Every member trains on one thread for the same time, and is judged on the validation
text alone. The table is written again after each member, and a second call goes on where the first was stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

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

from translate.config import load_config
from translate.errors import UserError
from translate.run.sealed_files import write_file

RECIPE = "recipe"
# What is taken out or put in the place of an ingredient: name -> what it says in the table, overrides of the recipe.
MEMBERS: dict[str, tuple[str, tuple[str, ...]]] = {
    RECIPE: ("the recipe", ()),
    "no-layer-norm": ("no layer norm", ("model.encoder.layer_norm=false", "model.decoder.layer_norm=false")),
    "no-dropout": (
        "no dropout",
        ("model.embedding.dropout=0.0", "model.encoder.dropout=0.0", "model.decoder.dropout=0.0"),
    ),
    "word-dropout": (
        "a tenth of the words dropped on both sides",
        ("model.encoder.word_dropout=0.1", "model.decoder.word_dropout=0.1"),
    ),
    "no-label-smoothing": ("no label smoothing", ("train.label_smoothing=0.0",)),
    "untied": ("three tables of embeddings instead of one", ("model.embedding.tied=none",)),
    "large-vocabulary": ("10,000 pieces", ("tokenizer.vocabulary=10000",)),
    "large-batches": ("batches of 1,600 tokens", ("train.batch_tokens=1600",)),
    "no-average": ("no running average of the weights", ("train.ema=0.0",)),
    "no-decay": ("constant learning rate", ("train.schedule=constant",)),
    "last-state": ("the decoder starts from the last states, not their mean", ("model.encoder.summary=last",)),
    "bahdanau": ("`bahdanau` in place of `conditional`", ("model.decoder.kind=bahdanau",)),
    "luong": ("`luong` with `general` scores", ("model.decoder.kind=luong", "model.attention.score=general")),
    "plain": ("`plain`, no attention", ("model.decoder.kind=plain",)),
}
CURVES = {"plain": "plain", "luong": "luong", "bahdanau": "bahdanau", RECIPE: "conditional"}
BEGIN, END = "<!-- what each ingredient gives -->", "<!-- end of table -->"
ROW = "row.json"


@dataclass(frozen=True)
class Row:
    """What is known of one member: WORK/NAME/row.json."""

    settings: list[str]
    bleu: float  # best of the validations, greedy
    chrf: float
    updates: int
    tokens_per_second: float
    jobs: int
    commit: str
    machine: str
    date: str


Outcome = Row | Failure


@dataclass(frozen=True)
class Comparison:
    """One call of the script."""

    config: Path
    folder: Path
    minutes: float
    jobs: int
    work: Path
    output: Path

    @property
    def page(self) -> Path:
        return self.output / "recipes.md"

    def settings_of(self, name: str) -> list[str]:
        common = (
            f"data.folder={self.folder}",
            f"train.minutes={self.minutes:g}",
            "train.threads=1",
            "train.device=cpu",
            "train.valid_every=500",
            "train.keep_last=1",
            "logging.pictures=false",
        )
        return [*common, *MEMBERS[name][1]]

    def go(self, only: Sequence[str]) -> int:
        """Train what is not known yet; 1 if a member failed."""
        for name in only:
            load_config(self.config, self.settings_of(name))  # what the recipe cannot do is told first
        self._around()
        self.work.mkdir(parents=True, exist_ok=True)
        outcomes: dict[str, Outcome] = {}
        for name in MEMBERS:
            row = self._known(name)
            if row is not None:
                outcomes[name] = row
        todo = [name for name in only if name not in outcomes]
        print(f"{len(only) - len(todo)} of {len(only)} members are known, {len(todo)} to train.", flush=True)

        def done(name: str, outcome: Outcome) -> None:
            outcomes[name] = outcome
            self._write(outcomes)
            said = outcome.reason if isinstance(outcome, Failure) else f"BLEU {outcome.bleu:.1f}"
            print(f"{name}: {said}", flush=True)

        make_all(todo, self.jobs, self._make, done)
        self._write(outcomes)
        self._draw(outcomes)
        failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failure)]
        print(f"{self.page}: {len(outcomes)} rows" + f", failed: {', '.join(failed)}" * bool(failed))
        return 1 if failed else 0

    def _known(self, name: str) -> Row | None:
        """The row of an earlier call; a run of other settings is refused."""
        path = self.work / name
        try:
            row = Row(**json.loads((path / ROW).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            row = None
        if row is not None and row.settings == self.settings_of(name):
            return row
        if row is not None or is_other_run(path, self.config, self.settings_of(name)):
            raise UserError(
                f"{path} was made with other settings. "
                f"Give another --work, or remove it: rm -r {shlex.quote(str(path))}"
            )
        return None

    def _make(self, name: str, commands: Commands) -> Row:
        """Train a member, or go on with it, and read what its validations gave."""
        run, log = self.work / name, self.work / f"{name}.log"
        resume = ["--resume"] if (run / "last").is_file() else []
        commands.run(log, "train", self.config, *self.settings_of(name), "--run", run, "--no-test", *resume)
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n") if line]
        valid = [record for record in records if record["kind"] == "valid"]
        speeds = [record["tokens_per_second"] for record in records if record["kind"] == "train"]
        row = Row(
            settings=self.settings_of(name),
            bleu=max(record["bleu"] for record in valid),
            chrf=max(record["chrf"] for record in valid),
            updates=valid[-1]["step"],
            tokens_per_second=sum(speeds) / max(1, len(speeds)),
            jobs=self.jobs,
            commit=commit_now(),
            machine=machine(),
            date=date.today().isoformat(),
        )
        write_file(run / ROW, json.dumps(asdict(row)).encode())
        return row

    def _around(self) -> tuple[str, str]:
        """What stands before and after the table on the page."""
        try:
            text = self.page.read_text(encoding="utf-8")
        except FileNotFoundError:
            return f"# Recipes\n\n{BEGIN}", f"{END}\n"
        if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
            raise UserError(f"{self.page}: the lines {BEGIN} and {END} must stand in it once each, in this order.")
        return text[: text.index(BEGIN)] + BEGIN, text[text.index(END) :]

    def _write(self, outcomes: Mapping[str, Outcome]) -> None:
        """Replace the table; what stands around it is read at the last moment, for it may be edited meanwhile."""
        before, after = self._around()
        self.output.mkdir(parents=True, exist_ok=True)
        write_file(self.page, f"{before}\n{self._table(outcomes)}\n{after}".encode())

    def _table(self, outcomes: Mapping[str, Outcome]) -> str:
        rows = [outcome for outcome in outcomes.values() if isinstance(outcome, Row)]
        base = outcomes.get(RECIPE)
        lines = [
            f"`{self.config.name}`, validation BLEU (greedy, best of the run) after {self.minutes:g} minutes on one "
            f"thread, {distinct(str(row.jobs) for row in rows)} at a time, one seed. "
            f"{distinct(row.machine for row in rows)}; "
            f"{distinct(row.date for row in rows)}; commit {distinct(row.commit for row in rows)}.",
            "",
            "| taken out or changed | BLEU | | chrF | updates | tokens/s |",
            "|---|---|---|---|---|---|",
        ]
        for name, (said, _) in MEMBERS.items():
            outcome = outcomes.get(name)
            if isinstance(outcome, Failure):
                lines.append(f"| {said} | failed: {plain(outcome.reason)} | | | | |")
            elif outcome is not None:
                change = f"{outcome.bleu - base.bleu:+.1f}" if isinstance(base, Row) and name != RECIPE else ""
                lines.append(
                    f"| {said} | {outcome.bleu:.1f} | {change} | {outcome.chrf:.1f} | {outcome.updates:,} | "
                    f"{outcome.tokens_per_second:,.0f} |"
                )
        return "\n".join(lines)

    def _draw(self, outcomes: Mapping[str, Outcome]) -> None:
        """The learning curves of the four decoders in one picture, once all are there."""
        if any(not isinstance(outcomes.get(name), Row) for name in CURVES):
            return
        labels = [part for label in CURVES.values() for part in ("--label", label)]
        runs = [self.work / name for name in CURVES]
        Commands().run(self.work / "curves.log", "curves", *runs, *labels, "--output", self.output / "curves.png")


@as_program
def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the members, or those that are named."""
    parser = argparse.ArgumentParser(description="Take each ingredient out of a recipe once.")
    parser.add_argument("folder", type=Path, help="the recipe's corpus")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "multi30k-en-de.toml", help="the recipe")
    parser.add_argument("--minutes", type=float, default=15.0, help="of training, each (%(default)g)")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="members at once, a thread each (%(default)s)")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "recipe", help="folder of the runs (runs/recipe)")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of recipes.md and curves.png (docs)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEMBERS, default=[*MEMBERS], help="some of them")
    given = parser.parse_args(arguments)
    places = (given.work.absolute(), given.output.absolute())
    comparison = Comparison(given.config, given.folder.absolute(), given.minutes, given.jobs, *places)
    return comparison.go(list(dict.fromkeys(given.only)))


if __name__ == "__main__":
    sys.exit(main())
