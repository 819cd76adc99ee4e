"""Reading sentence pairs: plain files, TSV, JSON lines, Parquet and data sets of the Hugging Face hub.

A line ends only at a newline byte, so line N of one side stays the translation of line N of the other whatever the
text contains.
"""

from __future__ import annotations

import codecs
import difflib
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from translate.config import HUB_PREFIX, DataConfig
from translate.errors import DataError
from translate.text.hub import first_line, open_hub, rows_of

# Every character that some program treats as the end of a line or that moves a terminal's cursor: C0, DEL, C1, the two
# Unicode separators, and the byte-order mark.
BREAKS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF]))

_NOT_TEXT = re.compile(f"[{re.escape(BREAKS)}\ud800-\udfff]")  # a lone surrogate cannot be written as UTF-8
_STRUCT = "translation"
_PARQUET_ROWS = 1000
_MOST_NAMES = 20


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Languages(NamedTuple):
    """The names of the two columns."""

    source: str
    target: str


@dataclass(frozen=True)
class Corpus:
    """Where one split's pairs come from."""

    name: str
    """Its name in messages."""
    files: tuple[Path, ...]
    """The files it is read from; empty for a data set of the hub."""
    read: Callable[[], Iterator[Pair]]
    parts: tuple[Corpus, ...] = ()
    """The corpora it consists of, if there are several."""

    def pairs(self) -> Iterator[Pair]:
        """All pairs in order, unchanged, read on demand."""
        return self.read()

    def fingerprint(self) -> str:
        """The SHA-256 of the files' contents, or of the pairs if there are no files."""
        digest = hashlib.sha256()
        for path in self.files:
            with _opened(path) as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        if not self.files:
            for pair in self.pairs():
                digest.update(json.dumps(pair).encode())
        return digest.hexdigest()


def tidy(line: str) -> str:
    """Replace every control character and line separator by one space, so that offsets stay the same."""
    return line if line.isprintable() else _NOT_TEXT.sub(" ", line)  # what it replaces is not printable


def has_breaks(line: str) -> bool:
    """Whether a line contains characters that `tidy` replaces."""
    return not line.isprintable() and _NOT_TEXT.search(line) is not None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, split at newline bytes only; `-` is stdin."""
    if str(path) == "-":
        # A reader of our own: Python aborts at exit if a thread still waits in sys.stdin's reader.
        with open(sys.stdin.fileno(), "rb", closefd=False) as stdin:
            yield from lines_of(stdin, "stdin")
        return
    with _opened(path) as file:
        yield from lines_of(file, str(path))


def lines_of(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open binary file, without carriage returns at their ends or a leading byte-order mark."""
    for number, raw in enumerate(file, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            raise DataError(
                f"{name}:{number}: not valid UTF-8 (byte 0x{line[error.start]:02x} at column {column}). "
                "Convert the file, for instance with `iconv -f WINDOWS-1252 -t UTF-8`."
            ) from None
        yield text


def find_corpus(data: DataConfig, split: Literal["train", "valid", "test"]) -> Corpus:
    """The corpus that the configuration's folder and stem name."""
    if split == "train":
        return joined([_find(data, split, stem) for stem in data.train_stems])
    return _find(data, split, data.valid if split == "valid" else data.test)


def joined(corpora: Sequence[Corpus]) -> Corpus:
    """Several corpora one after the other."""
    if len(corpora) == 1:
        return corpora[0]

    def read() -> Iterator[Pair]:
        return itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)

    files = tuple(path for corpus in corpora for path in corpus.files)
    return Corpus("; ".join(corpus.name for corpus in corpora), files, read, tuple(corpora))


def _find(data: DataConfig, split: str, stem: str) -> Corpus:
    languages = Languages(data.source_lang, data.target_lang)
    if data.folder.startswith(HUB_PREFIX):
        return Corpus(f"{data.folder} ({stem})", (), partial(_read_hub, data.folder, stem, languages))
    folder = Path(data.folder)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "no such folder"
        raise DataError(f"data.folder: {folder}: {what}. Give the folder that holds the corpus files.")
    kinds: dict[tuple[Path, ...], Callable[[], Iterator[Pair]]] = {}
    for names, reader in _kinds(stem, languages, data.columns).items():
        files = tuple(folder / name for name in names)
        if all(file.is_file() for file in files):
            kinds[files] = partial(reader, *files)
    if not kinds:
        raise DataError(_nothing_found(folder, split, stem, languages))
    if len(kinds) > 1:
        found = "; ".join(_joined(file.name for file in files) for files in kinds)
        raise DataError(
            f"{folder}: data.{split} = '{stem}' fits more than one corpus: {found}. Rename or remove all but one."
        )
    [(files, read)] = kinds.items()
    return Corpus(_joined(map(str, files)), files, read)


def parallel_files(source: Path, target: Path) -> Corpus:
    """The corpus of two plain files, line N of each a translation of the other."""
    return Corpus(_joined(map(str, (source, target))), (source, target), partial(_read_plain, source, target))


def open_file(path: Path, source_lang: str, target_lang: str) -> Corpus:
    """The corpus of one file that holds both sides."""
    languages = Languages(source_lang, target_lang)
    for (name,), reader in list(_kinds(path.stem, languages).items())[1:]:  # the first kind is two files
        if name == path.name:
            if not path.is_file():
                raise DataError(f"{path}: no such file.")
            return Corpus(str(path), (path,), partial(reader, path))
    raise DataError(f"{path}: one file must be .tsv, .jsonl or .parquet; give both files of a pair of text files.")


def _kinds(
    stem: str, languages: Languages, columns: tuple[int, int] = (1, 2)
) -> dict[tuple[str, ...], Callable[..., Iterator[Pair]]]:
    return {
        (f"{stem}.{languages.source}", f"{stem}.{languages.target}"): _read_plain,
        (f"{stem}.tsv",): partial(_read_tsv, columns=columns),
        (f"{stem}.jsonl",): partial(_read_jsonl, languages=languages),
        (f"{stem}.parquet",): partial(_read_parquet, languages=languages),
    }


def _read_plain(source: Path, target: Path) -> Iterator[Pair]:
    lines = read_lines(source), read_lines(target)
    for num_pairs, sides in enumerate(itertools.zip_longest(*lines)):
        if None in sides:
            counts = [num_pairs + sum(1 for _ in rest) for rest in lines]
            counts[sides.index(None) - 1] += 1  # the line just read
            same = source.name == target.name
            raise DataError(
                f"{source if same else source.name} has {counts[0]} lines, {target if same else target.name} "
                f"{counts[1]}: line N of each must be a translation of the other. "
                "`translate data check` shows where they diverge."
            )
        yield Pair(*sides)


def _read_tsv(path: Path, columns: tuple[int, int]) -> Iterator[Pair]:
    for line in read_lines(path):
        cells = line.split("\t")
        yield Pair(*(cells[column - 1] if column <= len(cells) else "" for column in columns))


def _read_jsonl(path: Path, languages: Languages) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(
                f'{where}: not valid JSON ({error}). Each line must be an object such as {{"{languages.source}": "…", '
                f'"{languages.target}": "…"}}.'
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: an object with the columns {_joined(languages)} is needed, not {line[:40]!r}.")
        yield pair_of(row, languages, where)


def _read_parquet(path: Path, languages: Languages) -> Iterator[Pair]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with _opened(path) as file, pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            wanted = [name for name in (*languages, _STRUCT) if name in names]
            if not wanted:
                raise DataError(_missing_column(languages.source, names, str(path)))
            rows = 0
            for batch in parquet.iter_batches(_PARQUET_ROWS, columns=wanted):
                for row in batch.to_pylist():
                    rows += 1
                    yield pair_of(row, languages, f"{path}, row {rows}", names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {first_line(error)}. Write the file again.") from None


def _read_hub(folder: str, split: str, languages: Languages) -> Iterator[Pair]:
    where = f"{folder} ({split})"
    rows = open_hub(folder.removeprefix(HUB_PREFIX), split, languages, where=where)
    for number, row in enumerate(rows_of(rows, where), start=1):
        yield pair_of(row, languages, f"{where}, row {number}")


def pair_of(row: Mapping[str, Any], languages: Languages, where: str, names: Iterable[str] | None = None) -> Pair:
    """The two sides of a row with named columns, or with a `translation` struct of them."""
    inner = row.get(_STRUCT)
    if isinstance(inner, Mapping) and not set(languages) <= set(row):
        row, names = inner, None
    sides = []
    for language in languages:
        if language not in row:
            raise DataError(_missing_column(language, names or row, where))
        side = row[language]
        if side is not None and not isinstance(side, str):
            raise DataError(f"{where}: column '{language}' holds {side!r:.40}, which is not text.")
        sides.append(side or "")
    return Pair(*sides)


def _missing_column(language: str, names: Iterable[str], where: str) -> str:
    return (
        f"{where}: no column '{language}'; there are: {_joined(names) or 'none'}. "
        "Columns are named by data.source_lang and data.target_lang, or --source-lang and --target-lang."
    )


def _nothing_found(folder: Path, split: str, stem: str, languages: Languages) -> str:
    wanted = list(_kinds(stem, languages))
    there = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    looked_for = ", ".join(_joined(names) for names in wanted)
    shown = ", ".join(there[:_MOST_NAMES]) + (" …" if len(there) > _MOST_NAMES else "")
    plain, *others = wanted
    hints = []
    for name in (*plain, *itertools.chain(*others)):
        # Correct names of plain files are suggested only for plain files.
        rivals = [e for e in there if e not in plain and (name in plain or e.endswith(Path(name).suffix))]
        if name not in there and (close := difflib.get_close_matches(name, rivals, n=1, cutoff=0.7)):
            hints.append(f"'{close[0]}' for '{name}'")
    hint = f" Did you mean {' and '.join(hints)}?" if hints else ""
    return (
        f"{folder}: no corpus for data.{split} = '{stem}': looked for {looked_for}; found: {shown or 'no file'}.{hint}"
    )


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None


def _joined(names: Iterable[str]) -> str:
    return " + ".join(names)
