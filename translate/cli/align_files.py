"""What `translate align` writes: links, records, pictures, a page."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING

from translate.errors import UserError

if TYPE_CHECKING:
    from translate.decoding.aligner import AlignedSentence


class Format(StrEnum):
    """What can be written."""

    pharaoh = "pharaoh"
    probabilities = "probabilities"
    gold = "gold"
    naacl = "naacl"
    json = "json"
    npz = "npz"
    png = "png"
    svg = "svg"
    pdf = "pdf"
    html = "html"


PICTURES = (Format.png, Format.svg, Format.pdf)
BINARY = (Format.npz, Format.html)  # one file for all sentences, by default in the run
DEFAULT_NAMES = {Format.npz: "alignments.npz", Format.html: "page.html"}


def write(
    sentences: Iterable[AlignedSentence],
    format: Format,
    output: Path | None,
    run: Path,
    pieces: bool = False,
    errors: Sequence[float] = (),
    by_head: bool = False,
) -> None:
    """Write sentences in a format to a file, a folder for pictures, or stdout.

    `pieces` links pieces, not words; `errors` are the error rates of the sentences, which a page can be sorted by;
    `by_head` says that the weights are an alignment head's probabilities, not attention.
    """
    if format in PICTURES:
        _draw(sentences, format, output or run / "alignment", by_head)
    elif format in BINARY:
        _write_whole(sentences, format, output or _place_in(run) / DEFAULT_NAMES[format], run, errors)
    else:
        to_stdout = output is None or str(output) == "-"
        with contextlib.nullcontext(sys.stdout) if to_stdout else _text_file(output) as file:
            for sentence in sentences:
                file.write(_text(sentence, format, pieces))


def _text(sentence: AlignedSentence, format: Format, pieces: bool) -> str:
    from translate.alignment.formats import Gold, format_gold, format_naacl, format_pharaoh, format_probabilities

    if format == Format.json:
        return json.dumps(sentence.record(), ensure_ascii=False) + "\n"
    if format == Format.pharaoh:
        assert not pieces or sentence.piece_links is not None
        return format_pharaoh(sentence.piece_links or [] if pieces else sentence.links) + "\n"
    if format == Format.probabilities:
        return format_probabilities(sentence.links, sentence.probabilities) + "\n"
    links = frozenset(sentence.links)
    gold = Gold(links - frozenset(sentence.possible), links, sentence.probabilities)
    return format_gold(gold) + "\n" if format == Format.gold else format_naacl(gold, sentence.line)


def _place_in(run: Path) -> Path:
    folder = run / "alignment"
    _make(folder)
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {folder}: the folder cannot be made: {error.strerror}.") from None


@contextlib.contextmanager
def _text_file(path: Path | None) -> Iterator[IO[str]]:
    """A text file, or an error that names it."""
    assert path is not None
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except OSError as error:
        raise UserError(f"--output {path}: cannot be written: {error.strerror}.") from None


def _write_whole(
    sentences: Iterable[AlignedSentence], format: Format, path: Path, run: Path, errors: Sequence[float]
) -> None:
    """Write an archive or a page, which need all sentences at once."""
    from translate.alignment.formats import write_npz
    from translate.figures.page import page

    records = [sentence.record() for sentence in sentences]
    if format == Format.html:
        for record, error in zip(records, errors, strict=False):
            record["aer"] = error
        content = page(records, title=run.resolve().name).encode()
    else:
        buffer = io.BytesIO()
        write_npz(buffer, records)
        content = buffer.getvalue()
    if str(path) == "-":
        sys.stdout.buffer.write(content)
        return
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"--output {path}: cannot be written: {error.strerror}.") from None
    print(f"{path}: {len(content):,} bytes", file=sys.stderr)


def _draw(sentences: Iterable[AlignedSentence], format: Format, folder: Path, by_head: bool) -> None:
    from translate.figures.heatmap import ATTENTION, HEAD, save_heatmap

    if str(folder) == "-":
        raise UserError("--output -: pictures need a folder, with one file per sentence.")
    _make(folder)
    count = 0
    for sentence in sentences:
        if sentence.target_words:
            columns = [*sentence.source_words, "</s>"]
            path = folder / f"{sentence.line}.{format.value}"
            measure = HEAD if by_head else ATTENTION
            save_heatmap(path, sentence.word_weights, columns, sentence.target_words, measure=measure)
            count += 1
    print(f"{count} pictures in {folder}", file=sys.stderr)
