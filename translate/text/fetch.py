"""Downloads well-known parallel corpora from the Hugging Face hub to plain files; can be interrupted and resumed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from translate.errors import DataError
from translate.text.corpus import Languages, Pair, pair_of, tidy
from translate.text.hub import open_hub, rows_of

TRAIN, VALID, TEST = "train", "valid", "test"
MOST_HELD_OUT = 1000
_SHARES = 50  # validation and test each get one of this many equal shares of the sentences
_SECONDS_BETWEEN_NOTES = 5.0
_ROWS_BETWEEN_LOOKS = 1000  # rows between two checks of the clock
Advance = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class HubCorpus:
    """Where a corpus is on the hub, and the names of its splits and columns there."""

    repository: str
    splits: dict[str, str]
    """Its split for each of our stems; missing validation and test sets are drawn from the training data."""
    about: str
    languages: tuple[str, ...] = ()
    """All its languages; empty if its configurations name them."""
    default: tuple[str, str] = ("en", "fr")
    columns: tuple[str, str] | None = None
    """The columns of English and of the other language, if they are not named by language."""
    only_columns: bool = False
    """Download only the two columns: the others are large."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of pairs of each stem, if the data set itself does not have it."""

    @property
    def drawn(self) -> tuple[str, ...]:
        """The stems that are drawn from the training data."""
        has_valid = len(self.splits) > 1
        return () if len(self.splits) > 2 else (TEST,) if has_valid else (VALID, TEST)


_THREE = {TRAIN: "train", VALID: "validation", TEST: "test"}
_MULTI30K = {"train": "train", "val": "validation", "test2016": "test"}
_MULTI30K_COUNTS = {"train": 29_000, "val": 1014, "test2016": 1000}
CORPORA: dict[str, HubCorpus] = {
    "multi30k": HubCorpus(
        "bentrevett/multi30k",
        _MULTI30K,
        "29,000 image captions; en-de, and fr and cs with the same English",
        ("de", "en"),
        ("en", "de"),
        counts=_MULTI30K_COUNTS,
    ),
    "wmt14": HubCorpus(
        "wmt/wmt14", _THREE, "news and parliament; en with de (4.5 million), fr (41), cs, hi, ru", default=("en", "de")
    ),
    "opus-100": HubCorpus("Helsinki-NLP/opus-100", _THREE, "up to a million pairs of en with each of 99 languages"),
    "opus_books": HubCorpus("Helsinki-NLP/opus_books", {TRAIN: "train"}, "novels, 16 languages, 64 pairs of them"),
    "news_commentary": HubCorpus(
        "Helsinki-NLP/news_commentary", {TRAIN: "train"}, "newspaper opinion, 12 languages, all pairs of them"
    ),
    "tatoeba": HubCorpus(
        "sentence-transformers/parallel-sentences-tatoeba",
        {TRAIN: "train", VALID: "dev"},
        "short everyday sentences, en with about 50 languages",
        columns=("english", "non_english"),
    ),
}
# The same captions with French and Czech, in a data set that also contains the images.
_MULTI30K_ALL = HubCorpus(
    "romrawinjp/multi30k", _MULTI30K, "", ("cs", "de", "en", "fr"), only_columns=True, counts=_MULTI30K_COUNTS
)


@dataclass
class Note:
    """The state of a download; written to fetch-L1-L2.json when it is complete."""

    name: str
    repository: str
    languages: list[str]
    limit: int | None
    pairs: dict[str, int] = field(default_factory=dict)
    """Number of pairs of each complete stem."""
    complete: bool = False
    under_way: str | None = None
    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file at the position of `state`."""
    state: dict[str, Any] | None = None


def corpus_named(name: str, languages: tuple[str, str]) -> HubCorpus:
    """The corpus of this name that has these languages."""
    corpus = CORPORA.get(name)
    if corpus is None:
        raise DataError(f"'{name}' is not a corpus that can be fetched. Choose from: {', '.join(CORPORA)}.")
    if name == "multi30k" and set(languages) != {"en", "de"}:
        corpus = _MULTI30K_ALL
    if corpus.languages and not set(languages) <= set(corpus.languages):
        raise DataError(f"{name} has {', '.join(corpus.languages)}, not {' and '.join(languages)}.")
    if corpus.columns and "en" not in languages:
        raise DataError(f"{name} pairs every language with English: one of the two must be en.")
    if languages[0] == languages[1]:
        raise DataError(f"{name}: source and target are both '{languages[0]}'. Give --source-lang and --target-lang.")
    return corpus


class Fetch:
    """The download of one corpus into a folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        languages: tuple[str, str],
        limit: int | None = None,
        mirror: Path | None = None,
        advance: Advance = lambda stem, pairs, expected: None,
    ) -> None:
        self.corpus = corpus_named(name, languages)
        self.languages = Languages(*languages)
        self.folder, self.limit, self.mirror, self.advance = folder, limit, mirror, advance
        pair = "-".join(languages)
        self.work = folder / f".fetch-{pair}"
        """The folder of unfinished files, so that an incomplete file never looks complete."""
        self.noted = folder / f"fetch-{pair}.json"
        self.note = Note(name, self.corpus.repository, list(languages), limit)
        self.stems = [*self.corpus.splits, *self.corpus.drawn]

    def run(self) -> Note:
        """Fetch what is missing; returns the final note."""
        if self._is_done():
            return self.note
        try:
            self._take_up()
            for stem, split in self.corpus.splits.items():
                if stem not in self.note.pairs:
                    self._fetch(stem, split)
            self._finish()
        except OSError as error:
            raise DataError(f"{self.folder}: cannot be written: {error.strerror or error}.") from None
        return self.note

    def _is_done(self) -> bool:
        if self.noted.is_file():
            old = self._read(self.noted)
            if old.complete and all(path.is_file() for path in self._files(self.stems, self.folder)):
                self.note = old
                return True
        for stem in self.stems:
            sides = self._files([stem], self.folder)
            if all(path.exists() for path in sides):
                raise DataError(f"{sides[0]} and {sides[1]} already exist. Give another folder, or remove them.")
        return False

    def _read(self, path: Path) -> Note:
        """Read a note; refuses one of another download."""
        try:
            old = Note(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{path}: not a note of `data fetch`: {error}. Remove it to start again.") from None
        for what in ("name", "languages", "limit"):
            before, now = getattr(old, what), getattr(self.note, what)
            if before != now:
                raise DataError(
                    f"{self.folder} was fetched with another {what}: {before}, not {now}. Give another folder."
                )
        return old

    def _take_up(self) -> None:
        if (self.work / "note.json").is_file():
            self.note = self._read(self.work / "note.json")

    def _files(self, stems: list[str], folder: Path) -> list[Path]:
        return [folder / f"{stem}.{language}" for stem in stems for language in self.languages]

    # -- one split ----------------------------------------------------------------------------------------------------

    def _fetch(self, stem: str, split: str) -> None:
        """Read a split of the hub to its end or to the limit; draw missing splits from the training data."""
        note = self.note
        where = f"{note.name} ({split})"
        rows = self._open(split, where)
        expected = self._expected(rows, stem, split)
        made = [stem, *(self.corpus.drawn if stem == TRAIN else ())]
        if note.under_way != stem or note.state is None:
            note.under_way, note.rows, note.state = stem, 0, None
            note.counts = dict.fromkeys(made, 0)
            note.sizes = {path.name: 0 for path in self._files(made, self.work)}
        else:
            rows.load_state_dict(note.state)
        self.work.mkdir(parents=True, exist_ok=True)  # only now, so that nothing is left behind if there is no network
        with ExitStack() as stack:
            files = {path.name: stack.enter_context(path.open("ab")) for path in self._files(made, self.work)}
            for name, file in files.items():
                file.truncate(note.sizes[name])  # cut off what was written after the note
                file.seek(0, os.SEEK_END)
            try:
                whole = self._copy(rows, where, stem, expected, files)
            except DataError as error:
                raise DataError(f"{error} What was read is kept: the same command continues from there.") from None
            finally:
                self._save(rows, files)
        if whole and expected is not None and note.rows != expected:
            self._forget()
            raise DataError(
                f"{where}: {note.rows:,} pairs were received, but the data set has {expected:,}. "
                "The same command tries again."
            )
        note.pairs |= note.counts
        self._forget()

    def _open(self, split: str, where: str) -> Any:
        name = self.corpus.repository if self.mirror is None else str(self.mirror)
        columns = list(self.languages) if self.corpus.only_columns else None
        return open_hub(name, split, self.languages, where, columns)

    def _expected(self, rows: Any, stem: str, split: str) -> int | None:
        """The number of pairs by the data set's own record, else by ours for data sets of the hub."""
        known = (rows.info.splits or {}).get(split)
        if known is not None and known.num_examples:
            return int(known.num_examples)
        return self.corpus.counts.get(stem) if self.mirror is None else None

    def _copy(self, rows: Any, where: str, stem: str, expected: int | None, files: Mapping[str, BinaryIO]) -> bool:
        """Write pairs until the split ends or the limit is reached; returns whether the split ended."""
        note = self.note
        draw = _Draw([other for other in note.counts if other != stem], self.work, self.languages, note.counts)
        looked = time.monotonic()
        for pair in self._pairs(rows, where):
            note.rows += 1
            goal = draw.stem_of(pair) or (None if draw.holds(pair) else stem)
            if goal is not None:
                note.counts[goal] += 1
                for language, side in zip(self.languages, pair, strict=True):
                    files[f"{goal}.{language}"].write(side.encode() + b"\n")
            if self.limit is not None and note.counts[stem] >= self.limit:
                return False
            if note.rows % _ROWS_BETWEEN_LOOKS == 0:
                self.advance(stem, note.rows, expected)
                if time.monotonic() - looked > _SECONDS_BETWEEN_NOTES:
                    self._save(rows, files)
                    looked = time.monotonic()
        self.advance(stem, note.rows, note.rows)
        return True

    def _pairs(self, rows: Any, where: str) -> Iterator[Pair]:
        for row in rows_of(rows, where):
            if self.corpus.columns is not None:
                english, other = (row.get(column) for column in self.corpus.columns)
                row = {language: english if language == "en" else other for language in self.languages}
            pair = pair_of(row, self.languages, f"{where}, row {self.note.rows + 1}")
            yield Pair(tidy(pair.source), tidy(pair.target))

    def _save(self, rows: Any, files: Mapping[str, BinaryIO]) -> None:
        """Save the position; what is written later is cut off when the download is resumed."""
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
        self.note.sizes = {name: file.tell() for name, file in files.items()}
        self.note.state = rows.state_dict()
        self._write_note(self.work / "note.json")

    def _forget(self) -> None:
        self.note.under_way, self.note.state, self.note.sizes = None, None, {}
        self._write_note(self.work / "note.json")

    def _write_note(self, path: Path) -> None:
        unfinished = path.with_name(f".tmp-{path.name}")
        unfinished.write_text(json.dumps(asdict(self.note), indent=1), encoding="utf-8")
        unfinished.replace(path)

    def _finish(self) -> None:
        """Move the files to their place; a side that exists from another language pair must be the same."""
        moves = [(path, self.folder / path.name) for path in self._files(self.stems, self.work)]
        for ours, theirs in moves:
            if theirs.exists() and _digest(ours) != _digest(theirs):
                raise DataError(f"{theirs} already exists and differs. Give another folder.")
        for ours, theirs in moves:
            ours.replace(theirs)
        self.note.complete, self.note.rows, self.note.counts = True, 0, {}
        self._write_note(self.noted)
        shutil.rmtree(self.work)


class _Draw:
    """Chooses pairs of the training data for validation and test, by the source sentence alone.

    So no sentence is both in training and held out, the choice is reproducible, and the data is read only once.
    """

    def __init__(self, stems: list[str], folder: Path, languages: Languages, counts: Mapping[str, int]) -> None:
        self.stems, self.counts = stems, counts
        self.held: dict[str, set[bytes]] = {stem: set() for stem in stems}
        for stem in stems:  # what was drawn before the download was interrupted
            with (folder / f"{stem}.{languages.source}").open("rb") as file:
                self.held[stem] = {_key(line.removesuffix(b"\n")) for line in file}

    def stem_of(self, pair: Pair) -> str | None:
        """The stem of a held-out pair; None for training, or for no stem at all if `holds` is True."""
        if not self.stems:
            return None
        key = _key(pair.source.encode())
        share = int.from_bytes(key, "big") % _SHARES
        if share >= len(self.stems):
            return None
        stem = self.stems[share]
        if self.counts[stem] >= MOST_HELD_OUT or not (pair.source.strip() and pair.target.strip()):
            return None
        self.held[stem].add(key)
        return stem

    def holds(self, pair: Pair) -> bool:
        """Whether a pair's source is held out, so that it must not be in the training data."""
        return bool(self.stems) and any(_key(pair.source.encode()) in held for held in self.held.values())


def _key(source: bytes) -> bytes:
    return hashlib.blake2b(source, digest_size=8).digest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
