"""`translate data fetch`, `translate data check` and `translate data clean`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from translate.cli.options import PluginOption
from translate.defaults import MAX_RATIO, MAX_WORDS

if TYPE_CHECKING:
    from translate.text.clean import Fault
    from translate.text.corpus import Corpus
    from translate.text.inspection import HeldOut

app = typer.Typer(help="Fetch, check and clean parallel corpora.", no_args_is_help=True)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="CORPUS",
        help="Two text files; or one .tsv, .jsonl or .parquet; or a configuration, for its training data.",
    ),
]
SourceLang = Annotated[str, typer.Option(help="Column of the source in .jsonl and .parquet; other files need none.")]
TargetLang = Annotated[str, typer.Option(help="Column of the target.")]
HeldOutFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--held-out",
        help="A file of validation or test sources; training pairs that hold one of them are at fault. Repeatable.",
    ),
]
RULES = (  # as in translate.text.clean, which loads too slowly for a help text
    "They are: empty-side, no-letters, too-long, length-ratio, identical-sides, wrong-script, mojibake, duplicate, "
    "held-out, control-characters."
)
MaxWords = Annotated[int, typer.Option(min=0, help="Maximum number of words of a side; 0 means no limit.")]
MaxRatio = Annotated[
    float,
    typer.Option(min=0, help="Maximum ratio of the lengths, divided by the corpus's usual ratio; 0 means no limit."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def check(
    files: Files,
    source_lang: SourceLang = "src",
    target_lang: TargetLang = "tgt",
    held_out: HeldOutFiles = None,
    max_words: MaxWords = MAX_WORDS,
    max_ratio: MaxRatio = MAX_RATIO,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")] = None,
    as_json: AsJson = False,
    plugin: PluginOption = None,
) -> None:
    """Report on a parallel corpus: counts, lengths, and everything that looks wrong, with line numbers."""
    import json

    from translate.errors import UserError
    from translate.figures.corpus_report import as_html, as_text
    from translate.text.clean import Norms
    from translate.text.inspection import inspect

    corpus, _, apart = _find(files, source_lang, target_lang, held_out or [])
    report = inspect(corpus, Norms(max_words, max_ratio), apart)
    if html is not None:
        try:
            html.write_text(as_html(report), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{html}: cannot be written: {error.strerror}.") from None
    if as_json:
        print(json.dumps(report.as_json(), ensure_ascii=True))
    elif html is None:
        print(as_text(report), end="")
    else:
        print(f"The report is in {html}.")


@app.command()
def clean(
    files: Files,
    output: Annotated[Path, typer.Option(help="Folder of the copy.")],
    source_lang: SourceLang = "src",
    target_lang: TargetLang = "tgt",
    held_out: HeldOutFiles = None,
    max_words: MaxWords = MAX_WORDS,
    max_ratio: MaxRatio = MAX_RATIO,
    only: Annotated[
        str | None, typer.Option(help=f"Rules to apply, separated by commas; all if left out. {RULES}")
    ] = None,
    without: Annotated[str, typer.Option(help="Rules not to apply, separated by commas.")] = "",
    as_json: AsJson = False,
    plugin: PluginOption = None,
) -> None:
    """Write a cleaned copy of a parallel corpus; the input stays as it is, and pairs stay pairs."""
    import json
    from dataclasses import asdict

    from translate.text.clean import Norms
    from translate.text.cleaning import clean as write_clean
    from translate.text.cleaning import refuse_existing

    rules = _rules(only, without)
    corpus, (stem, *languages), apart = _find(files, source_lang, target_lang, held_out or [])
    made = (output / f"{stem}.{languages[0]}", output / f"{stem}.{languages[1]}")
    if len(files) == 2:
        made = (output / files[0].name, output / files[1].name)
    copies = _other_splits(files, output)
    refuse_existing([*made, *(copy for _, pair in copies for copy in pair)])
    report = write_clean(corpus, made, rules, Norms(max_words, max_ratio), apart)
    for split, pair in copies:
        write_clean(split, pair, [], Norms(0, 0))
    if as_json:
        tree = asdict(report)
        for part in ("left_out", "repaired"):
            tree[part] = {name.replace(" ", "_"): count for name, count in tree[part].items()}
        print(json.dumps(tree))
        return
    print(f"{corpus.name}: {report.read:,} pairs read, {report.written:,} written to {made[0]} and {made[1]}")
    for verb, counts in (("left out", report.left_out), ("repaired", report.repaired)):
        for name, count in counts.items():
            print(f"  {verb:<9} {count:>9,}  {name}")
    for _, pair in copies:
        print(f"copied unchanged: {pair[0]} and {pair[1]}")


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="multi30k, wmt14, opus-100, opus_books, news_commentary or tatoeba."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the files.")],
    source_lang: Annotated[str | None, typer.Option(help="Source language; the corpus's first if left out.")] = None,
    target_lang: Annotated[str | None, typer.Option(help="Target language; the corpus's second if left out.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of pairs per split; the rest is not read.")
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option(help="A copy of the data set on this machine, to read instead.")
    ] = None,
) -> None:
    """Fetch a well-known corpus from the Hugging Face hub; the same command resumes an interrupted download."""
    from translate.errors import UserError
    from translate.text.fetch import CORPORA, Fetch, corpus_named

    if mirror is not None and not mirror.is_dir():
        raise UserError(f"--mirror {mirror}: no such folder.")
    first, second = CORPORA[name].default if name in CORPORA else ("en", "fr")
    languages = (source_lang or first, target_lang or second)
    corpus_named(name, languages)
    with _progress() as advance:
        note = Fetch(name, folder, languages, limit, mirror, advance).run()
    counts = ", ".join(
        f"{pairs:,} pairs in {stem}.{languages[0]} and .{languages[1]}" for stem, pairs in note.pairs.items()
    )
    print(f"{folder}: {counts} ({note.repository})")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar on a terminal, a line every ten seconds elsewhere."""
    import time

    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with Progress(console=console) as bar:
            tasks = {}

            def show(stem: str, rows: int, expected: int | None) -> None:
                if stem not in tasks:
                    tasks[stem] = bar.add_task(stem, total=expected)
                bar.update(tasks[stem], completed=rows, total=expected)

            yield show
        return
    said = time.monotonic()

    def say(stem: str, rows: int, expected: int | None) -> None:
        nonlocal said
        if rows == expected or time.monotonic() - said > 10:
            said = time.monotonic()
            console.print(f"{stem}: {rows:,} pairs" + (f" of {expected:,}" if expected else ""), soft_wrap=True)

    yield say


def _find(
    files: list[Path], source_lang: str, target_lang: str, held_out: list[Path]
) -> tuple[Corpus, tuple[str, str, str], list[HeldOut]]:
    """The corpus that the arguments name, what a copy is called, and the sentences held out of it."""
    from functools import partial

    from translate.errors import UserError
    from translate.text.corpus import find_corpus, open_file, parallel_files, read_lines
    from translate.text.inspection import HeldOut

    apart = [HeldOut(str(path), partial(read_lines, path)) for path in held_out]
    for path in held_out:
        if not path.is_file():
            raise UserError(f"--held-out {path}: no such file.")
    if len(files) == 2:
        return parallel_files(*files), (files[0].stem, files[0].suffix[1:], files[1].suffix[1:]), apart
    if len(files) > 2:
        raise UserError("Give two text files, or one .tsv, .jsonl, .parquet or .toml.")
    [path] = files
    if path.suffix != ".toml":
        return open_file(path, source_lang, target_lang), (path.stem, source_lang, target_lang), apart
    from translate.config import load_config

    data = load_config(path).data
    held: tuple[Literal["valid", "test"], ...] = ("valid", "test")
    for split in held:
        corpus = find_corpus(data, split)
        apart.append(HeldOut(f"data.{split}", partial(_sources, corpus)))
    return find_corpus(data, "train"), ("-".join(data.train_stems), data.source_lang, data.target_lang), apart


def _sources(corpus: Corpus) -> list[str]:
    return [pair.source for pair in corpus.pairs()]


def _other_splits(files: list[Path], output: Path) -> list[tuple[Corpus, tuple[Path, Path]]]:
    """Validation and test data of a configuration, which are copied uncleaned: the copy can be a data.folder."""
    from translate.config import load_config
    from translate.text.corpus import find_corpus

    if len(files) != 1 or files[0].suffix != ".toml":
        return []
    data = load_config(files[0]).data
    stems: dict[Literal["valid", "test"], str] = {"valid": data.valid, "test": data.test}
    return [
        (find_corpus(data, split), (output / f"{stem}.{data.source_lang}", output / f"{stem}.{data.target_lang}"))
        for split, stem in stems.items()
    ]


def _rules(only: str | None, without: str) -> list[Fault]:
    from translate.errors import UserError
    from translate.text.clean import FAULTS

    by_name = {fault.replace(" ", "-"): fault for fault in FAULTS}

    def named(text: str) -> set[Fault]:
        names = [part.strip().replace("_", "-").replace(" ", "-") for part in text.split(",") if part.strip()]
        for name in names:
            if name not in by_name:
                raise UserError(f"'{name}' is not a rule. Choose from: {', '.join(by_name)}.")
        return {by_name[name] for name in names}

    wanted = (set(FAULTS) if only is None else named(only)) - named(without)
    return [fault for fault in FAULTS if fault in wanted]
