"""A report on a parallel corpus: what it contains, what is wrong with it and where.

The corpus is read twice, as a stream: first to measure its usual lengths and scripts, then to judge each pair by them.
Only a few numbers are kept for each pair.
"""

from __future__ import annotations

import codecs
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from translate.errors import DataError
from translate.text.clean import (
    FAULTS,
    Fault,
    Norms,
    comparable,
    faults_of,
    has_mojibake,
    num_words,
    pair_key,
    scripts_of,
    source_key,
)
from translate.text.corpus import Corpus, Pair, read_lines, tidy

MOST_LINES = 1000  # line numbers kept of each fault
MOST_STRANGE = 10
OWN_SCRIPT = 0.05  # a writing system with a smaller share of a side's letters counts as foreign
_ODD_SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_BITS: dict[Fault, int] = {fault: 1 << place for place, fault in enumerate(FAULTS)}
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileFacts:
    """Facts about a file that are lost when it is read."""

    name: str
    lines: int
    byte_order_mark: bool
    crlf_lines: int
    final_newline: bool
    ragged_rows: int = 0
    """Rows of a TSV file with fewer than two columns."""
    first_ragged: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """The text of one language."""

    words: int
    characters: int
    mean_words: float
    median_words: float
    longest_words: int
    scripts: dict[str, float]
    odd_space_lines: int
    """Lines with no-break or other unusual spaces, which are correct in French."""


@dataclass(frozen=True)
class Finding:
    """One fault: how many pairs have it, and the line numbers of the first of them."""

    count: int
    lines: list[int]


@dataclass(frozen=True)
class Overlap:
    """How many held-out sentences are in the training data."""

    name: str
    sentences: int
    in_training: int


@dataclass(frozen=True)
class Strange:
    """An unusual pair."""

    line: int
    score: float
    faults: list[Fault]
    source: str
    target: str


@dataclass(frozen=True)
class Histogram:
    """Counts between edges; the last bin has no upper edge."""

    edges: list[float]
    counts: list[int]


@dataclass(frozen=True)
class Inspection:
    """The whole report."""

    name: str
    pairs: int
    files: list[FileFacts]
    source: Side
    target: Side
    ratio: float
    """Target characters for each source character, by the median."""
    max_words: int
    max_ratio: float
    findings: dict[Fault, Finding]
    repeated_sources: int
    overlap: list[Overlap]
    strangest: list[Strange]
    histograms: dict[str, Histogram]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values, names of faults as keys with underscores."""
        tree = asdict(self)
        tree["findings"] = {name.replace(" ", "_"): asdict(finding) for name, finding in self.findings.items()}
        for pair in tree["strangest"]:
            pair["faults"] = [name.replace(" ", "_") for name in pair["faults"]]
        return tree


@dataclass(frozen=True)
class HeldOut:
    """Sentences that must not be in the training data."""

    name: str
    sources: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Measurement:
    """Statistics of the pairs of a corpus, including the unusual ones."""

    norms: Norms
    source: Side
    target: Side
    histograms: dict[str, Histogram]


@dataclass(frozen=True)
class Judgement:
    """The faults of every pair, as bits, and the norms by which they were found."""

    norms: Norms
    bits: NDArray[np.uint16]
    strangeness: NDArray[np.float32]
    overlap: list[Overlap]
    repeated_sources: int

    def lines_with(self, fault: Fault) -> NDArray[np.int64]:
        """The 1-based line numbers of the pairs with a fault."""
        return np.flatnonzero(self.bits & _BITS[fault]) + 1

    def faults(self, line: int) -> list[Fault]:
        return [fault for fault, bit in _BITS.items() if int(self.bits[line - 1]) & bit]


def judge(corpus: Corpus, norms: Norms, held_out: Sequence[HeldOut] = ()) -> Judgement:
    """Find the faults of all pairs by norms that `measure` has found."""
    keys = [{source_key(line) for line in part.sources()} for part in held_out]
    seen: list[set[int]] = [set() for _ in keys]
    bits, strangeness = array("H"), array("f")
    pair_keys, source_keys = array("q"), array("q")
    for pair in corpus.pairs():
        faults = faults_of(pair, norms)
        key = source_key(pair.source)
        known = [place for place in range(len(keys)) if key in keys[place]]
        for place in known:
            seen[place].add(key)
        if known:
            faults.append("held out")
        bits.append(sum(_BITS[fault] for fault in faults))
        strangeness.append(_strangeness(pair, faults, norms))
        pair_keys.append(pair_key(pair))
        source_keys.append(key)
    flags = np.array(bits, np.uint16)
    flags[_repeated(np.array(pair_keys, np.int64))] |= _BITS["duplicate"]
    overlap = []
    for part, found in zip(held_out, seen, strict=True):
        known_lines = [source_key(line) in found for line in part.sources()]
        overlap.append(Overlap(part.name, len(known_lines), sum(known_lines)))
    repeated = len(_repeated(np.array(source_keys, np.int64)))
    return Judgement(norms, flags, np.array(strangeness, np.float32), overlap, repeated)


def inspect(corpus: Corpus, limits: Norms, held_out: Sequence[HeldOut] = ()) -> Inspection:
    """Read a corpus and report on it."""
    measured = measure(corpus, limits)
    judgement = judge(corpus, measured.norms, held_out)
    findings = {}
    for fault in FAULTS:
        lines = judgement.lines_with(fault)
        findings[fault] = Finding(len(lines), lines[:MOST_LINES].tolist())
    return Inspection(
        name=corpus.name,
        pairs=len(judgement.bits),
        files=[_file_facts(path) for path in corpus.files],
        source=measured.source,
        target=measured.target,
        ratio=judgement.norms.scale,
        max_words=limits.max_words,
        max_ratio=limits.max_ratio,
        findings=findings,
        repeated_sources=judgement.repeated_sources,
        overlap=judgement.overlap,
        strangest=_strangest(corpus, judgement),
        histograms=measured.histograms,
    )


def measure(corpus: Corpus, limits: Norms) -> Measurement:
    """Measure lengths, the usual ratio and writing systems; of `limits`, only the maximum values are used."""
    _refuse_unequal(corpus)
    lengths = array("q"), array("q")
    words = array("q"), array("q")
    scripts = Counter[str](), Counter[str]()
    odd = [0, 0]
    for pair in corpus.pairs():
        for side, text in enumerate(pair):
            plain = tidy(text)
            lengths[side].append(len(plain.strip()))
            words[side].append(num_words(plain))
            if not has_mojibake(text):
                scripts[side].update(scripts_of(plain))
            odd[side] += not plain.isascii() and any(space in plain for space in _ODD_SPACES)
    src, tgt = (np.array(side, np.int64) for side in lengths)
    both = (src > 0) & (tgt > 0)
    scale = float(np.median(tgt[both] / src[both])) if both.any() else 1.0
    shares = [{script: count / own.total() for script, count in own.most_common()} for own in scripts]
    own = tuple(frozenset(script for script, share in side.items() if share >= OWN_SCRIPT) for side in shares)
    sides = []
    for side in (0, 1):
        counts = np.array(words[side], np.int64)
        sides.append(
            Side(
                words=int(counts.sum()),
                characters=int((src, tgt)[side].sum()),
                mean_words=round(float(counts.mean()), 2) if len(counts) else 0.0,
                median_words=float(np.median(counts)) if len(counts) else 0.0,
                longest_words=int(counts.max(initial=0)),
                scripts={script: round(share, 6) for script, share in shares[side].items()},
                odd_space_lines=odd[side],
            )
        )
    ratios = (tgt[both] / scale + 1e-9) / src[both]
    histograms = {
        "source words": _histogram(np.array(words[0], np.float64), _word_edges(words)),
        "target words": _histogram(np.array(words[1], np.float64), _word_edges(words)),
        "length ratio": _histogram(ratios, [0.0, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.11, 1.25, 1.5, 2.0, 3.0, 5.0]),
    }
    norms = Norms(limits.max_words, limits.max_ratio, scale, (own[0], own[1]))
    return Measurement(norms, sides[0], sides[1], histograms)


def _word_edges(words: tuple[Any, Any]) -> list[float]:
    """About a dozen bins of a round width, over all sentences except the longest 1 %."""
    every = np.concatenate([np.array(side, np.int64) for side in words])
    most = float(np.quantile(every, 0.99)) if len(every) else 1.0
    width = next(w for w in (1, 2, 5, 10, 20, 50, 100, 1e9) if w * 12 >= most)
    return [width * place for place in range(13)]


def _histogram(values: NDArray[np.float64], edges: list[float]) -> Histogram:
    counts = np.histogram(values, [*edges, math.inf])[0]
    return Histogram(edges, counts.tolist())


def _strangeness(pair: Pair, faults: list[Fault], norms: Norms) -> float:
    """How unusual a pair is: by its length ratio, its share of characters other than letters, and its faults."""
    if "empty side" in faults:
        return 1.0  # a fault, but not interesting to show
    src, tgt = comparable(Pair(tidy(pair.source).strip(), tidy(pair.target).strip()), norms.scale)
    signs = max(sum(not (char.isalnum() or char.isspace()) for char in side) / len(side) for side in pair)
    return abs(math.log(tgt / src)) + signs + len(faults)


def _strangest(corpus: Corpus, judgement: Judgement) -> list[Strange]:
    order = np.argsort(-judgement.strangeness, kind="stable")[:MOST_STRANGE]
    wanted = {int(row) + 1 for row in order}
    texts = {line: pair for line, pair in enumerate(corpus.pairs(), start=1) if line in wanted}
    lines = [int(row) + 1 for row in order]
    scores = judgement.strangeness
    return [Strange(n, round(float(scores[n - 1]), 3), judgement.faults(n), *texts[n]) for n in lines]


def _repeated(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of keys that occurred before."""
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1]) + 1
    return order[again]


def _file_facts(path: Path) -> FileFacts:
    """Facts from the bytes of a file, read in blocks."""
    if path.suffix == ".parquet":
        return FileFacts(str(path), 0, False, 0, True)
    lines = crlf = 0
    start = last = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            start = start or block[:3]
            lines += block.count(b"\n")
            crlf += block.count(b"\r\n") + (last.endswith(b"\r") and block.startswith(b"\n"))
            last = block[-1:]
    ragged = list(_ragged_rows(path)) if path.suffix == ".tsv" else []
    return FileFacts(
        name=str(path),
        lines=lines + (last not in (b"", b"\n")),
        byte_order_mark=start.startswith(codecs.BOM_UTF8),
        crlf_lines=crlf,
        final_newline=last in (b"", b"\n"),
        ragged_rows=len(ragged),
        first_ragged=ragged[:MOST_LINES],
    )


def _ragged_rows(path: Path) -> Iterator[int]:
    return (number for number, line in enumerate(read_lines(path), start=1) if "\t" not in line)


def _refuse_unequal(corpus: Corpus) -> None:
    """If two plain files differ in their number of lines, raise an error with the line where they seem to diverge."""
    for part in corpus.parts:
        _refuse_unequal(part)
    if corpus.parts or len(corpus.files) != 2:
        return
    lengths = [np.array([len(line) for line in read_lines(path)], np.float64) for path in corpus.files]
    if len(lengths[0]) == len(lengths[1]):
        return
    where = parting(lengths[0], lengths[1])
    src, tgt = corpus.files
    raise DataError(
        f"{src} has {len(lengths[0])} lines, {tgt} {len(lengths[1])}: line N of each must be a translation of the "
        f"other. By their lengths, the lines diverge near line {where}: look there for a line that one file lacks."
    )


def parting(src: NDArray[np.float64], tgt: NDArray[np.float64]) -> int:
    """The line after which two sides of unequal counts most likely diverge, if all missing lines are in one place."""
    if len(src) > len(tgt):
        src, tgt = tgt, src
    if not len(src):
        return 1
    shift = len(tgt) - len(src)
    scale = tgt.sum() / max(src.sum(), 1.0)

    def misfit(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(np.log((theirs / max(scale, 1e-9) + 10) / (ours + 10)))

    straight = np.concatenate(([0.0], misfit(src, tgt[: len(src)]).cumsum()))
    shifted = misfit(src, tgt[shift:])
    rest = np.concatenate((shifted[::-1].cumsum()[::-1], [0.0]))
    return int(np.argmin(straight + rest)) + 1
