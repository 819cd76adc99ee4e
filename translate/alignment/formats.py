"""Word alignments in files: Pharaoh, Pharaoh with probabilities, gold, NAACL, JSON lines and NPZ.

Internally, all word numbers are 0-based and go source-target: `2-3` links source word 2 to target word 3. Files of
other tools may count from 1; `AlignmentFile` says how a file was read.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from translate.errors import DataError
from translate.text.corpus import lines_of

FloatArray = npt.NDArray[np.floating[Any]]
Base = Literal["auto", "0", "1"]
Parsed = TypeVar("Parsed")

JSON_DECIMALS = 6
LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})(?::([0-9.eE+-]{1,30}))?")
TOKEN = re.compile(r"[^ \t\r]+")  # str.split() would also split at U+2028 and U+0085
NAACL_LINE = re.compile(
    r"([0-9]{1,9})[ \t]+([0-9]{1,9})[ \t]+([0-9]{1,9})(?:[ \t]+([SP]))?(?:[ \t]+([0-9.eE+-]{1,30}))?"
)
NPZ_MAGIC = b"PK"
DAMAGED_NPZ = (  # exceptions that reading a damaged file may raise
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
MATRICES = ("weights", "word_weights", "reverse_word_weights")
FEWEST_TO_DETECT = 20  # sentences with links: if at least this many have no word 0, they count from 1
MOST_SENTENCES = 10_000_000  # a NAACL file names its sentences by number, and we make a list as long as the greatest


class Link(NamedTuple):
    """A source word and the target word that translates it, both counted from 0."""

    source: int
    target: int


@dataclass(frozen=True)
class Gold:
    """The links of a sentence as a file gives them: an aligner must find the sure ones and may give the possible ones.

    An aligner's links are read in the same way: `possible` holds all of them, `sure` those not marked as possible.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]
    probabilities: Mapping[Link, float] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        assert self.sure <= self.possible, "every sure link is also a possible one"


@dataclass(frozen=True)
class AlignmentFile:
    """What a file says, counted from 0, and how it was read."""

    sentences: list[Gold]
    format: str
    base: int
    detected: str
    """Why it is assumed to count from `base`; empty if the user or the format decides."""

    @property
    def open_ended(self) -> bool:
        """Whether the file cannot show sentences without links at its end."""
        return self.format == "NAACL"

    def filled(self, count: int) -> AlignmentFile:
        """The same with at least `count` sentences: adds sentences without links to an open-ended file."""
        missing = max(0, count - len(self.sentences)) if self.open_ended else 0
        return replace(self, sentences=[*self.sentences, *[Gold(frozenset(), frozenset())] * missing])

    def said(self, path: Path) -> str:
        """One line for the user."""
        reason = f" ({self.detected})" if self.detected else ""
        return f"{path}: {self.format}, words counted from {self.base}{reason}"


# -- one sentence as text ---------------------------------------------------------------------------------------------


def parse_pharaoh(line: str, where: str) -> list[Link]:
    """Read a line of `i-j` links in the order they are written; an empty line has none."""
    return [link for link, *_ in _parse_links(line, where, kinds="-", allowed="i-j, for example 0-0 2-1")]


def parse_gold(line: str, where: str) -> Gold:
    """Read a line of `i-j` (sure) and `ipj` (possible) links, perhaps with `:probability`; an empty line has none."""
    parsed = _parse_links(line, where, kinds="-p", allowed="i-j (sure) or ipj (possible), for example 0-0 2p1")
    sure = frozenset(link for link, kind, _ in parsed if kind == "-")
    probabilities = {link: probability for link, _, probability in parsed if probability is not None}
    return Gold(sure, frozenset(link for link, *_ in parsed), probabilities)


def format_pharaoh(links: Iterable[Link]) -> str:
    """Write each link once as `i-j`, sorted by source word, then by target word."""
    return " ".join(f"{link.source}-{link.target}" for link in sorted(set(links)))


def format_probabilities(links: Iterable[Link], probabilities: Mapping[Link, float]) -> str:
    """Write each link once as `i-j:probability`."""
    return " ".join(f"{link.source}-{link.target}:{_decimals(probabilities[link])}" for link in sorted(set(links)))


def format_gold(gold: Gold) -> str:
    """Write sure links as `i-j` and links that are only possible as `ipj`."""
    signs = ((link, "-" if link in gold.sure else "p") for link in sorted(gold.possible))
    return " ".join(f"{link.source}{sign}{link.target}" for link, sign in signs)


def format_naacl(gold: Gold, sentence: int) -> str:
    """Write one link a line as in the NAACL 2003 shared task: sentence, source, target from 1, S or P, probability."""
    lines = []
    for link in sorted(gold.possible):
        mark = "S" if link in gold.sure else "P"
        probability = f" {_decimals(gold.probabilities[link])}" if link in gold.probabilities else ""
        lines.append(f"{sentence} {link.source + 1} {link.target + 1} {mark}{probability}\n")
    return "".join(lines)


def _decimals(probability: float) -> str:
    return repr(round(float(probability), JSON_DECIMALS))


# -- whole files ------------------------------------------------------------------------------------------------------


def read_alignments(path: Path, base: Base = "auto", sentences: int | None = None) -> AlignmentFile:
    """Read a file of links in any of our formats, recognised by its content; `-` is stdin.

    A NAACL file does not show how many sentences follow its last link; `sentences` is their total number, if known.
    """
    content = _read_bytes(path)
    if content.startswith(NPZ_MAGIC):
        return AlignmentFile([_gold_of(record) for record in _read_npz(content, path)], "NPZ", 0, "")
    lines = list(lines_of(io.BytesIO(content), str(path)))
    first = next((line for line in lines if line.strip(" \t\r")), "")
    if first.lstrip(" \t").startswith("{"):
        records = _read_json_lines(lines, path)
        return AlignmentFile([_gold_of(record) for record in records], "JSON lines", 0, "")
    if NAACL_LINE.fullmatch(first.strip(" \t\r")):
        return AlignmentFile(_read_naacl(lines, path, base, sentences), "NAACL", 0 if base == "0" else 1, "")
    golds = [parse_gold(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    counted_from, detected = _detect_base(golds) if base == "auto" else (int(base), "")
    if counted_from:
        golds = [_from_one(gold, f"{path}:{number}") for number, gold in enumerate(golds, start=1)]
    return AlignmentFile(golds, "Pharaoh", counted_from, detected)


def read_pharaoh(path: Path) -> list[list[Link]]:
    """Read the links of every line of a Pharaoh file that counts from 0; `-` is stdin."""
    return _parse_lines(path, parse_pharaoh)


def read_gold(path: Path) -> list[Gold]:
    """Read the reference links of every line of a gold file that counts from 0; `-` is stdin."""
    return _parse_lines(path, parse_gold)


def _parse_lines(path: Path, parse: Callable[[str, str], Parsed]) -> list[Parsed]:
    lines = lines_of(io.BytesIO(_read_bytes(path)), str(path))
    return [parse(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _read_bytes(path: Path) -> bytes:
    """The bytes of a file; `-` is stdin."""
    try:
        if str(path) == "-":
            with open(sys.stdin.fileno(), "rb", closefd=False) as stdin:
                return stdin.read()
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None


def _detect_base(golds: Sequence[Gold]) -> tuple[int, str]:
    """Whether a Pharaoh file counts from 0 or 1, and why: if many sentences have links but no word 0, from 1."""
    if any(0 in link for gold in golds for link in gold.possible):
        return 0, "detected: there is a word 0"
    linked = sum(bool(gold.possible) for gold in golds)
    if linked >= FEWEST_TO_DETECT:
        return 1, f"detected: no word 0 in {linked} sentences with links"
    return 0, f"assumed: no word 0, but only {linked} sentences with links"


def _from_one(gold: Gold, where: str) -> Gold:
    """Convert links counted from 1 to links counted from 0."""
    if any(0 in link for link in gold.possible):
        raise DataError(
            f"{where}: there is a word 0, so this file does not count from 1. Leave out the option that sets the base."
        )

    def down(link: Link) -> Link:
        return Link(link.source - 1, link.target - 1)

    return Gold(
        frozenset(map(down, gold.sure)),
        frozenset(map(down, gold.possible)),
        {down(link): probability for link, probability in gold.probabilities.items()},
    )


def _parse_links(line: str, where: str, kinds: str, allowed: str) -> list[tuple[Link, str, float | None]]:
    """Read the links of a line, each with the sign between its numbers and the probability after it."""
    links = []
    for token in TOKEN.findall(line):
        match = LINK.fullmatch(token)
        probability = _number(match[4]) if match is not None else None
        if match is None or match[2] not in kinds or (match[4] and probability is None):
            raise DataError(f"{where}: {token[:40]!r} is not a link. A link is {allowed}, words counted from 0.")
        links.append((Link(int(match[1]), int(match[3])), match[2], probability))
    return links


def _number(text: str | None) -> float | None:
    """A finite number, or None."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _read_naacl(lines: Sequence[str], path: Path, base: Base, count: int | None) -> list[Gold]:
    """Read one link per line; in files that count from 1, links with word 0, which means no word, are left out."""
    first = 0 if base == "0" else 1
    links: dict[int, dict[Link, tuple[bool, float | None]]] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip(" \t\r")
        if not text:
            continue
        match = NAACL_LINE.fullmatch(text)
        probability = _number(match[5]) if match is not None else None
        if match is None or (match[5] and probability is None) or not 1 <= int(match[1]) <= MOST_SENTENCES:
            raise DataError(
                f"{path}:{number}: {text[:40]!r} is not a link. Here a link is: sentence (counted from 1), source "
                "word, target word, S or P, and perhaps a probability, for example 1 3 2 S 0.9."
            )
        link = Link(int(match[2]) - first, int(match[3]) - first)
        if min(link) >= 0:
            links.setdefault(int(match[1]), {})[link] = (match[4] != "P", probability)
    last = max(links, default=0)
    if count is not None and last > count:
        raise DataError(f"{path} has links of sentence {last}, but there are only {count} sentences.")
    return [_gold_from(links.get(sentence, {})) for sentence in range(1, (last if count is None else count) + 1)]


def _gold_from(links: Mapping[Link, tuple[bool, float | None]]) -> Gold:
    probabilities = {link: probability for link, (_, probability) in links.items() if probability is not None}
    return Gold(frozenset(link for link, (sure, _) in links.items() if sure), frozenset(links), probabilities)


# -- records: JSON lines and NPZ --------------------------------------------------------------------------------------


def write_npz(file: Any, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records into an open binary file: for record n from 0 `weights_n`, `links_n` and so on, and `records`.

    `records` holds everything else as the UTF-8 bytes of a JSON list. `numpy.load` reads the file without pickle.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    rest = []
    for number, record in enumerate(records):
        arrays |= {f"{name}_{number}": np.asarray(record[name], np.float32) for name in MATRICES if name in record}
        arrays[f"links_{number}"] = np.asarray(record["links"], np.int32).reshape(-1, 2)
        rest.append({name: value for name, value in record.items() if name not in (*MATRICES, "links")})
    text = json.dumps(rest, ensure_ascii=False).encode()
    arrays["records"] = np.frombuffer(text, np.uint8)
    np.savez_compressed(file, allow_pickle=False, **arrays)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a JSON lines or NPZ file; matrices of an NPZ file are float32 arrays."""
    content = _read_bytes(path)
    if content.startswith(NPZ_MAGIC):
        return list(_read_npz(content, path))
    return list(_read_json_lines(list(lines_of(io.BytesIO(content), str(path))), path))


def _read_npz(content: bytes, path: Path) -> Iterator[dict[str, Any]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            records = json.loads(arrays["records"].tobytes().decode())
            for number, record in enumerate(records):
                record |= {name: arrays[f"{name}_{number}"] for name in MATRICES if f"{name}_{number}" in arrays}
                yield {**record, "links": arrays[f"links_{number}"].tolist()}
    except DAMAGED_NPZ as error:
        raise DataError(f"{path}: not an NPZ file of alignments as `translate align` writes it: {error}") from None


def _read_json_lines(lines: Sequence[str], path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON: {error}.") from None
        if not isinstance(record, dict) or "links" not in record:
            raise DataError(f'{path}:{number}: a line must be a JSON object with "links": [[source, target], …].')
        _gold_of(record, f"{path}:{number}")
        yield record


def _gold_of(record: Mapping[str, Any], where: str = "record") -> Gold:
    """The links of a record: those of `links` that are not in `possible` are sure."""
    try:
        links = [Link(*link) for link in record["links"]]
        possible = {Link(*link) for link in record.get("possible", [])}
        probabilities = [float(probability) for probability in record.get("probabilities", [])]
        numbers = [number for link in [*links, *possible] for number in link]
    except (TypeError, ValueError):
        numbers = [-1]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise DataError(f'{where}: "links" must be pairs of word numbers from 0, as in [[0, 0], [2, 1]].')
    sure = frozenset(links) - possible
    known = dict(zip(links, probabilities, strict=True)) if len(probabilities) == len(links) else {}
    return Gold(sure, sure | possible, known)


def alignment_record(
    *,
    line: int,
    source: str,
    target: str,
    source_words: Sequence[str],
    target_words: Sequence[str],
    source_spans: Sequence[tuple[int, int]],
    target_spans: Sequence[tuple[int, int]],
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    weights: FloatArray,
    word_weights: FloatArray,
    links: Collection[Link],
    probabilities: Mapping[Link, float],
    possible: Collection[Link] = (),
    reverse_word_weights: FloatArray | None = None,
    piece_links: Collection[Link] | None = None,
    score: float | None = None,
) -> dict[str, Any]:
    """Put all that is known about the alignment of one sentence (`line` counts from 1) into a JSON object.

    `weights` covers all pieces and `</s>` of both sides; the last column of `word_weights` stands for "no word".
    """
    assert weights.shape == (len(target_pieces), len(source_pieces)), "weights are (T, S)"
    assert word_weights.shape == (len(target_words), len(source_words) + 1), "word weights are (J, I + 1)"
    record: dict[str, Any] = {
        "line": line,
        "source": source,
        "target": target,
        "source_words": list(source_words),
        "target_words": list(target_words),
        "source_spans": [list(span) for span in source_spans],
        "target_spans": [list(span) for span in target_spans],
        "source_pieces": list(source_pieces),
        "target_pieces": list(target_pieces),
        "weights": json_matrix(weights),
        "word_weights": json_matrix(word_weights),
        "links": [list(link) for link in sorted(links)],
        "probabilities": [round(float(probabilities[link]), JSON_DECIMALS) for link in sorted(links)],
    }
    if score is not None:
        record["score"] = round(score, JSON_DECIMALS)
    if reverse_word_weights is not None:
        record["reverse_word_weights"] = json_matrix(reverse_word_weights)
        record["possible"] = [list(link) for link in sorted(possible)]
    if piece_links is not None:
        record["piece_links"] = [list(link) for link in sorted(piece_links)]
    return record


def json_matrix(matrix: FloatArray) -> list[list[float]]:
    """Round in float64: float32 values have twelve meaningless digits more when they are written."""
    rows: list[list[float]] = matrix.astype(np.float64).round(JSON_DECIMALS).tolist()
    return rows
