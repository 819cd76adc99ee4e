"""Pairs as piece ids in an Arrow file, written in a stream and read through a memory map."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from translate.config import DataConfig
from translate.errors import RunError
from translate.text.clean import FilterReport, why_left_out
from translate.text.corpus import Corpus, Pair
from translate.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]

_SCHEMA = pa.schema([("src", pa.list_(pa.int32())), ("tgt", pa.list_(pa.int32())), ("line", pa.int64())])
_CHUNK_PAIRS = 5000
_CHUNK_CHARACTERS = 2_000_000


def prepare(corpus: Corpus, source: Tokenizer, target: Tokenizer, data: DataConfig, path: Path) -> FilterReport:
    """Write the corpus as piece ids to `path`, leaving out what the filters refuse."""
    report = FilterReport(data.max_length, data.max_ratio)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            with pa.ipc.new_file(file, _SCHEMA) as writer:
                for first, pairs in _chunks(corpus.pairs()):
                    src = source.encode_all([pair.source for pair in pairs])
                    tgt = target.encode_all([pair.target for pair in pairs])
                    kept = [
                        row for row in range(len(pairs)) if report.add(why_left_out(len(src[row]), len(tgt[row]), data))
                    ]
                    lines = [first + row for row in kept]
                    writer.write_batch(_record_batch([src[row] for row in kept], [tgt[row] for row in kept], lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)
    return report


class PairDataset:
    """Pairs of piece ids, without start and end symbols, straight from a memory-mapped file."""

    def __init__(self, source: Path | pa.Buffer) -> None:
        try:
            file = pa.memory_map(str(source)) if isinstance(source, Path) else source
            reader = pa.ipc.open_file(file)
            if reader.schema != _SCHEMA:
                raise pa.ArrowInvalid("other columns than src, tgt, line")
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{source}: cannot be read as prepared pairs: {error}. Remove the file.") from None
        self._ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64).tolist()
        self._sides = [(_Lists(batch.column("src")), _Lists(batch.column("tgt"))) for batch in batches]
        self.lines: NDArray[np.int64] = _concatenated([batch.column("line").to_numpy() for batch in batches], np.int64)
        """The 1-based line number of each pair in its corpus."""
        self.src_lengths: Ids = _concatenated([src.lengths for src, _ in self._sides], np.int32)
        """Source pieces of each pair, and one for the end symbol."""
        self.tgt_lengths: Ids = _concatenated([tgt.lengths for _, tgt in self._sides], np.int32)
        """Target pieces of each pair, and one for the end symbol."""

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> PairDataset:
        """A data set in memory."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            writer.write_batch(_record_batch(src, tgt, list(range(1, len(pairs) + 1))))
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
        self.lengths: Ids = np.diff(self.offsets) + np.int32(1)

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def _chunks(pairs: Iterator[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    """Runs of pairs of bounded size, each with the line number of its first."""
    first, chunk, characters = 1, list[Pair](), 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == _CHUNK_PAIRS or characters >= _CHUNK_CHARACTERS:
            yield first, chunk
            first, chunk, characters = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def _record_batch(src: list[Sequence[int]], tgt: list[Sequence[int]], lines: list[int]) -> Any:
    columns = [pa.array(values, field.type) for values, field in zip((src, tgt, lines), _SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=_SCHEMA)


def _concatenated(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
