"""Train decoders and scores in both directions on a corpus with gold alignments, and write how well they align it.

    python scripts/compare_alignment.py FOLDER OUT [--pairs N] [--minutes M | --steps N] [--jobs N] [--work DIR]
                                        [--only NAME ...]
    python scripts/compare_alignment.py FOLDER OUT --only --full THERE BACK [--guided THERE BACK]

FOLDER holds `train.L1 train.L2 dev.L1 dev.L2 gold.L1 gold.L2 gold.align`, the links from L1 to L2; OUT is a Markdown
file, written again after each member. A second call goes on where the first was stopped. With `--full` two finished
runs are measured too, with their alignment heads where they have some. Training and aligning go through the command
line, so that every number can be had by hand as well.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from comparing import Commands, Failure, as_program, at_least_one, commit_now, distinct, machine, make_all, plain

from translate.alignment.aer import Aer, score
from translate.alignment.formats import Gold, Link, read_alignments, read_pharaoh
from translate.alignment.symmetrize import METHODS, transposed
from translate.errors import UserError
from translate.run.directory import Run
from translate.run.heads import head_path
from translate.run.sealed_files import write_file
from translate.text.corpus import read_lines

CHOSEN_ON = 100  # gold sentences on which something may be chosen; it is reported on the others
MOST_VALID = 500  # pairs of `dev`

# Decoder and score.
MEMBERS: dict[str, tuple[str, ...]] = {
    f"{decoder}-{kind}": (f"model.decoder.kind={decoder}", f"model.attention.score={kind}")
    for decoder, kind in (
        ("bahdanau", "additive"),
        ("bahdanau", "general"),
        ("luong", "additive"),
        ("luong", "general"),
        ("conditional", "additive"),
        ("conditional", "general"),
    )
}

CONFIG = """# Written by scripts/compare_alignment.py.
[data]
folder = "data"
valid = "valid"
source_lang = "{source}"
target_lang = "{target}"
max_length = 80

[tokenizer]
kind = "bpe"
vocabulary = 8000
joint = true

[model.embedding]
width = 128

[model.encoder]
width = 128

[model.attention]
width = 128

[model.decoder]
width = 256

[train]
threads = 1
device = "cpu"
batch_tokens = 1500
learning_rate = 3e-3
schedule = "cosine"
warmup = 200
valid_every = 500
metric = "loss"
keep_last = 1

[logging]
every = 50
samples = 0
tensorboard = false
pictures = false
"""


@dataclass(frozen=True)
class Corpus:
    """The folder that is read."""

    folder: Path
    source: str
    target: str

    @classmethod
    def find(cls, folder: Path, languages: Sequence[str] | None) -> Corpus:
        """The folder's languages: as given, or the endings of `gold` in the order of the alphabet."""
        if languages is None:
            languages = sorted(path.suffix[1:] for path in folder.glob("gold.*") if path.suffix != ".align")
        if len(languages) != 2:
            raise UserError(
                f"{folder}: gold.L1, gold.L2 and gold.align are needed; found {', '.join(languages) or 'none'}."
            )
        corpus = cls(folder, *languages)
        names = [f"{stem}.{language}" for stem in ("train", "dev", "gold") for language in languages]
        missing = [name for name in (*names, "gold.align") if not (folder / name).is_file()]
        if missing:
            raise UserError(f"{folder} lacks {', '.join(missing)}. --languages L1 L2 names others.")
        return corpus

    def sides(self, stem: str) -> tuple[Path, Path]:
        return self.folder / f"{stem}.{self.source}", self.folder / f"{stem}.{self.target}"

    @cached_property
    def gold(self) -> list[Gold]:
        return list(read_alignments(self.folder / "gold.align", "auto").sentences)

    def write_project(self, work: Path, num_pairs: int) -> Path:
        """The first pairs and a configuration under `work`, unless they are there."""
        data = work / "data"
        data.mkdir(parents=True, exist_ok=True)
        for stem, name, most in (("train", "train", num_pairs), ("dev", "valid", MOST_VALID)):
            for path, language in zip(self.sides(stem), (self.source, self.target), strict=True):
                text = "".join(f"{line}\n" for line in islice(read_lines(path), most)).encode()
                place = data / f"{name}.{language}"
                if not place.is_file() or place.read_bytes() != text:
                    write_file(place, text)
        config = work / "config.toml"
        write_file(config, CONFIG.format(source=self.source, target=self.target).encode())
        return config


@dataclass(frozen=True)
class Score:
    """Links of one kind: on all sentences, on those for choosing, and on the others."""

    all: Aer
    first: Aer
    rest: Aer

    @classmethod
    def of(cls, links: Sequence[Collection[Link]], gold: Sequence[Gold]) -> Score:
        cut = cut_of(gold)
        return cls(score(links, gold), score(links[:cut], gold[:cut]), score(links[cut:], gold[cut:]))

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Score:
        return cls(*(Aer(**tree[name]) for name in ("all", "first", "rest")))

    def cell(self) -> str:
        return f"{self.all.aer:.1%} ({self.all.precision:.1%}, {self.all.recall:.1%})".replace("%", "")


Scores = dict[str, Score]


def cut_of(gold: Sequence[Gold]) -> int:
    """How many sentences something may be chosen on; half of a small set."""
    return min(CHOSEN_ON, len(gold) // 2)


@dataclass(frozen=True)
class Row:
    """What is known of one member: WORK/NAME.json."""

    settings: list[str]
    shift: int
    scores: Scores
    minutes: float
    commit: str
    machine: str
    day: str


Outcome = Row | Failure
SINGLE = ("there", "back", "there, shifted", "back, shifted")


def measure(
    corpus: Corpus, there: Path, back: Path, folder: Path, log: Path, commands: Commands, head: bool = False
) -> tuple[int, Scores]:
    """The shift that both runs agree on, and the scores of each direction and of both joined; links are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = corpus.sides("gold")
    forward, backward = ("--source", source, "--target", target), ("--source", target, "--target", source)
    more = ("--head",) if head else ()
    scores: Scores = {}

    def links(name: str, *arguments: str | Path) -> None:
        path = folder / f"{name}.links"
        commands.run(log, "align", *arguments, *more, "--output", path)
        found = [list(some) for some in read_pharaoh(path)]
        scores[name] = Score.of([transposed(some) for some in found] if name.startswith("back") else found, corpus.gold)

    links("there", there, *forward)
    links("back", back, *backward)
    shift = 0
    if not head:  # a head has read the word: there is nothing to shift
        gold = ("--gold", corpus.folder / "gold.align", "--json")
        both = ("align", there, "--reverse", back, *forward, *gold, "--shift", "auto")
        shift = int(json.loads(commands.run(log, *both))["shift"])
        for name, arguments in (("there, shifted", (there, *forward)), ("back, shifted", (back, *backward))):
            links(name, *arguments, "--shift", str(shift))
    for method in METHODS:
        links(method, there, "--reverse", back, *forward, "--shift", str(shift), "--symmetrize", method)
    return shift, scores


def chosen(scores: Scores) -> str:
    """The kind that is best on the sentences for choosing."""
    return min(scores, key=lambda name: scores[name].first.aer)


def settings_of(name: str, budget: str) -> list[str]:
    """`budget` is the setting that ends a run."""
    return [budget, *MEMBERS[name]]


def read_row(path: Path, settings: Sequence[str]) -> Row | None:
    """The row of a finished member, if it was made with these settings."""
    try:
        tree = json.loads(path.read_text())
        row = Row(**{**tree, "scores": _scores_of(tree["scores"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return row if row.settings == list(settings) else None


def read_full(path: Path) -> dict[str, tuple[int, Scores]]:
    """What calls before this one have found of finished runs."""
    try:
        return {
            name: (int(shift), _scores_of(scores)) for name, (shift, scores) in json.loads(path.read_text()).items()
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _scores_of(tree: Mapping[str, Any]) -> Scores:
    return {name: Score.from_json(one) for name, one in tree.items()}


@dataclass(frozen=True)
class Comparison:
    """One call of the script."""

    corpus: Corpus
    out: Path
    work: Path
    pairs: int
    budget: str
    jobs: int

    def go(self, only: Sequence[str], full: Mapping[str, tuple[Path, Path]]) -> int:
        """Train and measure what is not known yet, and the finished runs; 1 if a member failed."""
        for pair in full.values():
            for run in pair:
                Run.open(run)
        self.work.mkdir(parents=True, exist_ok=True)
        self._refuse_other_text()
        config = self.corpus.write_project(self.work, self.pairs)
        outcomes: dict[str, Outcome] = {}
        for name in MEMBERS:
            row = read_row(self.work / f"{name}.json", settings_of(name, self.budget))
            if row is not None:
                outcomes[name] = row
        todo = [name for name in only if name not in outcomes]
        print(f"{len(only) - len(todo)} of {len(only)} members are known, {len(todo)} to train.", flush=True)

        def make(name: str, commands: Commands) -> Row:
            return self._make_row(name, config, commands)

        def done(name: str, outcome: Row | Failure) -> None:
            outcomes[name] = outcome
            self._write(outcomes)
            print(f"{name}: {outcome.reason if isinstance(outcome, Failure) else told(outcome.scores)}", flush=True)

        make_all(todo, self.jobs, make, done)
        self._measure_full(full)
        self._write(outcomes)
        failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failure)]
        print(f"{self.out}: {len(outcomes)} rows" + f", failed: {', '.join(failed)}" * bool(failed))
        return 1 if failed else 0

    def _refuse_other_text(self) -> None:
        """Refuse a folder whose rows were made with another number of pairs: the table would mix them."""
        path = self.work / "data" / f"train.{self.corpus.source}"
        if path.is_file():
            found = sum(1 for _ in read_lines(path))
            wanted = sum(1 for _ in islice(read_lines(self.corpus.sides("train")[0]), self.pairs))
            if found != wanted:
                raise UserError(
                    f"{self.work} was made with {found:,} pairs, not {wanted:,}. Give another --work, or remove it: "
                    f"rm -r {shlex.quote(str(self.work))}"
                )

    def _make_row(self, name: str, config: Path, commands: Commands) -> Row:
        """Train a member in both directions, or go on with it, measure it, and keep its row."""
        settings, log, commit = settings_of(name, self.budget), self.work / f"{name}.log", commit_now()
        runs = self.work / f"{name}-there", self.work / f"{name}-back"
        for run, more in zip(runs, ((), ("--reverse",)), strict=True):
            commands.run(log, "train", config, *settings, "--run", run, "--resume", "--no-test", *more)
        shift, scores = measure(self.corpus, *runs, self.work / f"{name}-links", log, commands)
        facts = [json.loads(commands.run(log, "info", run, "--json")) for run in runs]
        minutes = sum(fact["training_minutes"] for fact in facts)
        row = Row(settings, shift, scores, minutes, commit, machine(), date.today().isoformat())
        write_file(self.work / f"{name}.json", (json.dumps(asdict(row), indent=1) + "\n").encode())
        return row

    @property
    def full(self) -> Path:
        return self.work / "full.json"

    def _measure_full(self, full: Mapping[str, tuple[Path, Path]]) -> None:
        """Keep the scores of finished runs by what they are, and of their heads."""
        found, commands = read_full(self.full), Commands()
        for name, (there, back) in full.items():
            for head in (False, True):
                if head and not all(head_path(Run(run)).is_dir() for run in (there, back)):
                    continue
                what = f"{name}, with the head" if head else name
                folder = self.work / f"full-{what.replace(', ', '-').replace(' ', '-')}"
                found[what] = measure(self.corpus, there, back, folder, self.work / "full.log", commands, head)
                kept = {
                    each: (shift, {kind: asdict(one) for kind, one in scores.items()})
                    for each, (shift, scores) in found.items()
                }
                write_file(self.full, (json.dumps(kept, indent=1) + "\n").encode())
                print(_list(found[what][1], self.cut))
                print(f"{what}: {told(found[what][1])}", flush=True)

    @property
    def cut(self) -> int:
        return cut_of(self.corpus.gold)

    def _write(self, outcomes: Mapping[str, Outcome]) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.out, render(outcomes, read_full(self.full), self).encode())


def told(scores: Scores) -> str:
    best = chosen(scores)
    return f"{best} is best on the first sentences, AER {scores[best].rest.aer:.1%} on the others"


# -- the page ----------------------------------------------------------------------------------------------------------


def render(outcomes: Mapping[str, Outcome], full: Mapping[str, tuple[int, Scores]], comparison: Comparison) -> str:
    """The whole page."""
    corpus = comparison.corpus
    cut = comparison.cut
    rows = [outcome for outcome in outcomes.values() if isinstance(outcome, Row)]
    parts = [
        "# Alignments compared\n",
        f"{len(corpus.gold)} gold sentences, {corpus.source}–{corpus.target}. Cells are AER, and in brackets precision "
        f"and recall, in per cent, over all sentences. `there` is {corpus.source} → {corpus.target}. Shifts are "
        f"chosen by agreement on validation data, never on gold. The last columns choose on the first {cut} gold "
        f"sentences and report the AER on the other {len(corpus.gold) - cut}.\n",
    ]
    if outcomes:
        parts.append(
            f"Each run: the first {comparison.pairs:,} pairs, `{comparison.budget}`, one thread, "
            f"{comparison.jobs} members at once. Date {distinct(row.day for row in rows)}; commit "
            f"{distinct(row.commit for row in rows)}; {distinct(row.machine for row in rows)}.\n"
        )
        parts.append(_table({name: outcomes[name] for name in MEMBERS if name in outcomes}))
    missing = [name for name in MEMBERS if name not in outcomes]
    if missing and outcomes:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    for name, (shift, scores) in full.items():
        parts.append(f"## {name[0].upper()}{name[1:]}\n\nShift {shift}.\n")
        parts.append(_list(scores, cut))
    return "\n".join(parts)


def _table(outcomes: Mapping[str, Outcome]) -> str:
    kinds = (*SINGLE, *METHODS)
    heads = ["member", "shift", *kinds, "chosen", "AER on the others", "minutes"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for name, outcome in outcomes.items():
        if isinstance(outcome, Failure):
            cells = [name, f"failed: {plain(outcome.reason)}", *[""] * (len(heads) - 2)]
        else:
            best = chosen(outcome.scores)
            cells = [name, str(outcome.shift), *(outcome.scores[kind].cell() for kind in kinds)]
            cells += [best, f"{100 * outcome.scores[best].rest.aer:.1f}", f"{outcome.minutes:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _list(scores: Scores, cut: int) -> str:
    lines = [f"| links | AER | precision | recall | AER, first {cut} | AER, others |", "|---|---:|---:|---:|---:|---:|"]
    best = chosen(scores)
    for name, one in scores.items():
        numbers = (one.all.aer, one.all.precision, one.all.recall, one.first.aer, one.rest.aer)
        label = f"{name} (chosen)" if name == best else name
        lines.append(f"| {label} | {' | '.join(f'{100 * number:.1f}' for number in numbers)} |")
    return "\n".join(lines) + "\n"


@as_program
def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the members, or those that are named, and finished runs."""
    parser = argparse.ArgumentParser(description="Train decoders and scores alike and write how well they align.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="train, dev and gold files")
    parser.add_argument("out", type=Path, metavar="OUT", help="the Markdown file to write")
    parser.add_argument("--languages", nargs=2, metavar=("L1", "L2"), help="endings, links going from L1 to L2")
    parser.add_argument("--pairs", type=at_least_one, default=50_000, help="first pairs of train (%(default)s)")
    parser.add_argument("--minutes", type=float, default=12.0, help="of each run (%(default)s)")
    parser.add_argument("--steps", type=at_least_one, help="updates of each run, instead of minutes")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="members at once, a thread each (%(default)s)")
    parser.add_argument(
        "--work", type=Path, default=Path("runs") / "alignment", help="folder of the runs (%(default)s)"
    )
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=MEMBERS, default=[*MEMBERS], help="some, or none")
    parser.add_argument("--full", nargs=2, type=Path, metavar=("THERE", "BACK"), help="two finished runs to measure")
    parser.add_argument("--guided", nargs=2, type=Path, metavar=("THERE", "BACK"), help="two that were guided by links")
    given = parser.parse_args(arguments)
    full = {name: tuple(pair) for name, pair in (("full runs", given.full), ("guided runs", given.guided)) if pair}
    corpus = Corpus.find(given.folder.absolute(), given.languages)
    places = given.out.absolute(), given.work.absolute()
    budget = f"train.minutes={given.minutes:g}" if given.steps is None else f"train.steps={given.steps}"
    comparison = Comparison(corpus, *places, given.pairs, budget, given.jobs)
    return comparison.go(
        list(dict.fromkeys(given.only)), {k: (a.absolute(), b.absolute()) for k, (a, b) in full.items()}
    )


if __name__ == "__main__":
    sys.exit(main())
