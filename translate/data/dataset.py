"""Pairs as piece ids in an Arrow file, written in a stream and read through a memory map."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from translate.config import DataConfig
from translate.errors import RunError
from translate.text.clean import FilterReport, Reason, why_left_out
from translate.text.corpus import Corpus, Pair
from translate.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]
Given = TypeVar("Given")
Made = TypeVar("Made")

_FORMAT = 1  # raise it when the same text gives other ids or another format
_SCHEMA = pa.schema([("src", pa.list_(pa.int32())), ("tgt", pa.list_(pa.int32())), ("line", pa.int64())])
_KEY = b"key"  # of the schema's metadata
_CHUNK_PAIRS = 5000
_CHUNK_CHARACTERS = 2_000_000
_MOST_WORKERS = 8  # one thread reads and writes for all of them


def content_key(fingerprint: str, source: Tokenizer, target: Tokenizer, data: DataConfig) -> str:
    """The SHA-256 of everything that the prepared pairs of a corpus depend on."""
    parts = {
        "format": _FORMAT,
        "corpus": fingerprint,
        "languages": (data.source_lang, data.target_lang),  # a file with named columns can be read both ways
        "columns": data.columns,
        "tokenizers": [hashlib.sha256(tokenizer.model).hexdigest() for tokenizer in (source, target)],
        "filters": (data.max_length, data.max_ratio),
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare(
    corpus: Corpus,
    source: Tokenizer,
    target: Tokenizer,
    data: DataConfig,
    path: Path,
    key: str = "",
    workers: int | None = None,
) -> FilterReport:
    """Write the corpus as piece ids to `path`, leaving out what the filters refuse.

    `key` goes into the file, for `PairDataset.key`. Threads, by default one per core, encode in C++ without Python's
    lock. The file is the same for any number of threads.
    """
    workers = workers or min(_num_cores(), _MOST_WORKERS)
    report = FilterReport(data.max_length, data.max_ratio)
    schema = _SCHEMA.with_metadata({_KEY: key.encode()})
    temporary = path.with_name(f".tmp-{path.name}")
    batches = _in_order(partial(_encoded, source, target, data, schema), _chunks(corpus.pairs()), workers)
    try:
        with temporary.open("wb") as file:
            with pa.ipc.new_file(file, schema) as writer, closing(batches):
                for batch, reasons in batches:
                    writer.write_batch(batch)
                    for reason, num_pairs in reasons:
                        report.add(reason, num_pairs)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)
    return report


class PairDataset:
    """Pairs of piece ids, without start and end symbols, from a memory-mapped file."""

    def __init__(self, source: Path | pa.Buffer) -> None:
        try:
            file = pa.memory_map(str(source)) if isinstance(source, Path) else source
            reader = pa.ipc.open_file(file)
            if reader.schema != _SCHEMA:
                raise pa.ArrowInvalid("other columns than src, tgt, line")
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{source}: cannot be read as prepared pairs: {error}. Remove the file.") from None
        self.key: str = (reader.schema.metadata or {}).get(_KEY, b"").decode(errors="replace")
        """The key that `prepare` was given: equal for equal pairs."""
        self._ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64).tolist()
        self._sides = [(_Lists(batch.column("src")), _Lists(batch.column("tgt"))) for batch in batches]
        self.lines: NDArray[np.int64] = _concatenated([batch.column("line").to_numpy() for batch in batches], np.int64)
        """The 1-based line number of each pair in its corpus."""
        self.src_lengths: Ids = _concatenated([src.lengths() for src, _ in self._sides], np.int32)
        """Source pieces of each pair, plus one for the end symbol."""
        self.tgt_lengths: Ids = _concatenated([tgt.lengths() for _, tgt in self._sides], np.int32)
        """Target pieces of each pair, plus one for the end symbol."""

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> PairDataset:
        """A data set in memory."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            sides = [pa.array([pair[side] for pair in pairs], _SCHEMA.field(side).type) for side in (0, 1)]
            lines = pa.array(range(1, len(pairs) + 1), pa.int64())
            writer.write_batch(pa.record_batch([*sides, lines], schema=_SCHEMA))
        return cls(sink.getvalue())

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        chunk = bisect_right(self._ends, index)
        row = index - (self._ends[chunk - 1] if chunk else 0)
        src, tgt = self._sides[chunk]
        return src[row], tgt[row]


class _Lists:
    """A column of lists as views of its two buffers."""

    def __init__(self, column: Any) -> None:
        self.values: Ids = column.values.to_numpy(zero_copy_only=True)
        self.offsets: Ids = column.offsets.to_numpy(zero_copy_only=True)

    def lengths(self) -> Ids:
        return np.diff(self.offsets) + np.int32(1)

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def _chunks(pairs: Iterator[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    """Chunks of pairs of bounded size, each with the line number of its first pair."""
    first, chunk, characters = 1, list[Pair](), 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == _CHUNK_PAIRS or characters >= _CHUNK_CHARACTERS:
            yield first, chunk
            first, chunk, characters = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def _encoded(
    source: Tokenizer, target: Tokenizer, data: DataConfig, schema: Any, chunk: tuple[int, list[Pair]]
) -> tuple[Any, list[tuple[Reason | None, int]]]:
    """The record batch of a chunk's kept pairs, and the number of pairs for each reason (None: kept)."""
    first, pairs = chunk
    src, src_lengths = source.encode_flat([pair.source for pair in pairs])
    tgt, tgt_lengths = target.encode_flat([pair.target for pair in pairs])
    # Judge each pair of lengths once: there are far fewer of them than sentence pairs.
    lengths, which, counts = np.unique(src_lengths << 32 | tgt_lengths, return_inverse=True, return_counts=True)
    reasons = [why_left_out(both >> 32, both & 0xFFFFFFFF, data) for both in lengths.tolist()]
    kept = np.array([reason is None for reason in reasons])[which]
    columns = [
        _lists(src[kept.repeat(src_lengths)], src_lengths[kept]),
        _lists(tgt[kept.repeat(tgt_lengths)], tgt_lengths[kept]),
        pa.array(first + np.flatnonzero(kept), pa.int64()),
    ]
    return pa.record_batch(columns, schema=schema), list(zip(reasons, counts.tolist(), strict=True))


def _lists(values: Ids, lengths: NDArray[np.int64]) -> Any:
    """A column of lists from their concatenated values."""
    offsets = np.concatenate(([0], lengths.cumsum())).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _in_order(work: Callable[[Given], Made], items: Iterable[Given], workers: int) -> Generator[Made, None, None]:
    """`map` on threads: results in order, a bounded number of pending items, and no thread left after closing."""
    pending = deque[Future[Made]]()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) == 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _concatenated(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
