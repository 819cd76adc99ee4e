"""`translate align`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from translate.cli.options import BeamOption, DeviceOption, RunArgument

if TYPE_CHECKING:
    from translate.alignment.formats import Gold
    from translate.decoding.aligner import AlignedSentence

CHUNK = 1000  # lines aligned at a time


class Format(StrEnum):
    """What can be written."""

    pharaoh = "pharaoh"
    json = "json"
    png = "png"
    svg = "svg"
    pdf = "pdf"


PICTURES = (Format.png, Format.svg, Format.pdf)


def command(
    run: RunArgument,
    source: Annotated[Path, typer.Option(help="Sentences to align; - is stdin.")],
    target: Annotated[Path | None, typer.Option(help="Their translations; the run's own if left out.")] = None,
    format: Annotated[Format, typer.Option(help="Links, full matrices, or heat maps.")] = Format.pharaoh,
    output: Annotated[
        Path | None, typer.Option(help="File (- is stdout), or for pictures a folder; RUN/alignment if left out.")
    ] = None,
    lines: Annotated[str | None, typer.Option(help="Only these lines, as in 1-20.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold links: print precision, recall and AER.")] = None,
    beam: BeamOption = None,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Scores against --gold as one JSON object.")] = False,
) -> None:
    """Word alignments and heat maps, of the run's own translations or of given ones."""
    from translate.cli.options import load_translator
    from translate.decoding.aligner import align
    from translate.errors import UserError

    if gold is not None and target is None:
        raise UserError("--gold needs --target: its links belong to given translations, not to the model's own.")
    if [source, target, gold].count(Path("-")) > 1:
        raise UserError("Only one of --source, --target and --gold can be -, stdin.")
    if gold is not None and format == Format.json and output is None:
        raise UserError("--format json with --gold needs --output: stdout is for the scores.")
    if as_json and (gold is None or output == Path("-")):
        raise UserError("--json prints the scores against --gold, alone on stdout; --format json writes the matrices.")
    numbers = _range(lines)
    sources, targets = _read_sides(source, target)
    if lines is not None and len(sources) <= numbers.start:
        raise UserError(f"--lines {lines}: {source} has {len(sources)} lines.")
    links = None if gold is None else _read_gold(gold, len(sources))
    sources, targets = sources[numbers], targets[numbers] if targets is not None else None
    translator = load_translator(run, beam, device)
    first = (numbers.start or 0) + 1

    def aligned() -> Iterator[AlignedSentence]:
        for begin in range(0, len(sources), CHUNK):
            given = None if targets is None else targets[begin : begin + CHUNK]
            yield from align(translator, sources[begin : begin + CHUNK], given, first_line=first + begin)

    if links is None:
        _write(aligned(), format, output, run)
        return
    sentences = list(aligned())
    if output is not None or format in PICTURES:
        _write(sentences, format, output, run)
    _print_scores(sentences, links[numbers], as_json)


def _read_sides(source: Path, target: Path | None) -> tuple[list[str], list[str] | None]:
    from translate.errors import DataError
    from translate.text.corpus import read_lines

    sources = list(read_lines(source))
    targets = None if target is None else list(read_lines(target))
    if targets is not None and len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources)} lines, {target} {len(targets)}: "
            "line N of each must be a translation of the other."
        )
    return sources, targets


def _range(lines: str | None) -> slice:
    """The Python slice of `3-7` or `3`, counted from 1."""
    from translate.errors import UserError

    if lines is None:
        return slice(0, None)
    first, dash, last = lines.partition("-")
    last = last if dash else first
    if not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise UserError(f"--lines {lines}: give a line or a range counted from 1, as in 3 or 1-20.")
    return slice(int(first) - 1, int(last))


def _write(
    sentences: Iterator[AlignedSentence] | Sequence[AlignedSentence], format: Format, output: Path | None, run: Path
) -> None:
    import contextlib
    import json
    import sys

    from translate.alignment.formats import format_pharaoh

    if format in PICTURES:
        _draw(sentences, format, output or run / "alignment")
        return
    to_stdout = output in (None, Path("-"))
    with contextlib.nullcontext(sys.stdout) if to_stdout else open_for_writing(output) as file:
        for sentence in sentences:
            text = format_pharaoh(sentence.links) if format == Format.pharaoh else json.dumps(sentence.record())
            file.write(text + "\n")


def open_for_writing(path: Path | None):  # type: ignore[no-untyped-def]
    """A text file, or an error that names it."""
    from translate.errors import UserError

    assert path is not None
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"--output {path}: cannot be written: {error.strerror}.") from None


def _draw(sentences: Iterator[AlignedSentence] | Sequence[AlignedSentence], format: Format, folder: Path) -> None:
    import sys

    from translate.errors import UserError
    from translate.figures.heatmap import save_heatmap

    if str(folder) == "-":
        raise UserError("--output -: pictures need a folder, one file a sentence.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {folder}: is no folder and cannot be made one: {error.strerror}.") from None
    count = 0
    for sentence in sentences:
        if sentence.target_words:
            columns = [*sentence.source_words, "</s>"]
            path = folder / f"{sentence.line}.{format.value}"
            save_heatmap(path, sentence.word_weights, columns, sentence.target_words)
            count += 1
    print(f"{count} pictures in {folder}", file=sys.stderr)


def _read_gold(path: Path, count: int) -> list[Gold]:
    """Gold links of as many lines as the source has."""
    from translate.alignment.formats import read_gold
    from translate.errors import DataError

    gold = read_gold(path)
    if len(gold) != count:
        raise DataError(
            f"{path} has {len(gold)} lines of gold, the source {count}: line N of each must belong together."
        )
    return gold


def _print_scores(sentences: Sequence[AlignedSentence], gold: list[Gold], as_json: bool) -> None:
    import json

    from translate.alignment.aer import score

    result = score([sentence.links for sentence in sentences], gold)
    if as_json:
        print(json.dumps(result.as_json()))
        return
    print(f"AER {result.aer:.3f}, precision {result.precision:.3f}, recall {result.recall:.3f}")
    print(f"over {result.sentences} sentences")
