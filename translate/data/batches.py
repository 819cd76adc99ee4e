"""Batches of a token budget, in an order that depends only on seed and epoch and can be resumed anywhere."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from translate.data.dataset import PairDataset
from translate.errors import DataError
from translate.text.tokenizer import BOS, EOS, PAD

Rows = NDArray[np.int64]
Respell = Callable[[int, int, Any, Any], tuple[Any, Any]]
"""Another segmentation of a pair: from epoch, line and the pieces of both sides."""

_POOL = 100_000  # pairs sorted by length together
_FEW = 32  # batches of up to this many pairs are not rounded down: it would cost too many pairs
_AHEAD = 4  # batches collated in advance
_TICK = 0.1  # seconds between the background thread's checks of whether the stream is closed


@dataclass(frozen=True)
class Batch:
    """Some pairs as padded tensors."""

    src: Tensor  # (B, S): pieces, EOS
    src_valid: Tensor  # (B, S)
    src_lengths: Tensor  # (B,), on the CPU always
    tgt_in: Tensor  # (B, T): BOS, pieces
    tgt_out: Tensor  # (B, T): pieces, EOS
    tgt_valid: Tensor  # (B, T)
    num_tokens: int
    """Number of real target tokens with end symbols; in a shard, that of the whole batch."""
    rows: Rows
    """The rows of the pairs in their data set."""

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        """The batch on a device; the lengths stay on the CPU, where packing and masks of ranges need them."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pinned(self) -> Batch:
        """The batch in pinned memory, from which a GPU can copy while the CPU continues."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> Batch:
        names = ("src", "src_valid", "tgt_in", "tgt_out", "tgt_valid")
        moved: dict[str, Any] = {name: move(getattr(self, name)) for name in names}
        return replace(self, **moved)


def collate(dataset: PairDataset, rows: Rows) -> Batch:
    """The pairs of these rows as one batch."""
    return _collated([dataset[int(row)] for row in rows], rows)


def _collated(pairs: Sequence[tuple[Any, Any]], rows: Rows) -> Batch:
    src, src_valid, src_lengths = collate_source([src for src, _ in pairs])
    tgt_out, tgt_valid, tgt_lengths = collate_source([tgt for _, tgt in pairs])
    tgt_in = tgt_out.roll(1, dims=1)  # (B, T)
    tgt_in[:, 0] = BOS
    tgt_in.masked_fill_(~tgt_valid, PAD)
    return Batch(src, src_valid, src_lengths, tgt_in, tgt_out, tgt_valid, int(tgt_lengths.sum()), rows)


def collate_shard(
    dataset: PairDataset, rows: Rows, rank: int, size: int, epoch: int = 0, respell: Respell | None = None
) -> Batch:
    """The part of a batch for one of `size` processes; all parts have similar numbers of tokens.

    The longest targets come first. If there are fewer pairs than processes, some get a pair without valid tokens.
    """
    pairs: list[tuple[Any, Any]] = [dataset[int(row)] for row in rows]
    if respell is not None:
        pairs = [respell(epoch, int(dataset.lines[row]), *pair) for row, pair in zip(rows, pairs, strict=True)]
    by_length = np.argsort([-len(tgt) for _, tgt in pairs], kind="stable")
    turns = np.arange(len(rows)) % (2 * size)  # for three processes: 0 1 2 2 1 0 0 1 2 …
    mine = by_length[np.minimum(turns, 2 * size - 1 - turns) == rank]
    taken = mine if len(mine) else np.zeros(1, np.int64)
    batch = _collated([pairs[place] for place in taken], rows[taken])
    counts = batch.tgt_valid if len(mine) else torch.zeros_like(batch.tgt_valid)
    return replace(batch, tgt_valid=counts, num_tokens=sum(len(tgt) + 1 for _, tgt in pairs))


def collate_source(sentences: Sequence[Sequence[int] | NDArray[np.int32]]) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences with their end symbols (B, S), the mask of real tokens (B, S), and the lengths (B,)."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)  # (B,)
    padded = np.full((len(sentences), lengths.max(initial=0)), PAD, dtype=np.int64)  # (B, S)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = sentence
    padded[np.arange(len(sentences)), lengths - 1] = EOS
    valid = np.arange(padded.shape[1]) < lengths[:, None]  # (B, S)
    return torch.from_numpy(padded), torch.from_numpy(valid), torch.from_numpy(lengths)


def token_batches(lengths: NDArray[np.integer[Any]], budget: int, order: Rows) -> list[Rows]:
    """Cut an order into batches whose count times longest is within the budget; a longer sentence is a batch alone.

    Large batches have a multiple of four sentences, except the last: products with such numbers of rows are faster.
    """
    ordered = lengths[order].astype(np.int64)
    batches = []
    begin = 0
    while begin < len(order):
        most = max(1, budget // max(1, int(ordered[begin])))
        longest = np.maximum.accumulate(ordered[begin : begin + most])
        sizes = longest * np.arange(1, len(longest) + 1)
        count = max(1, int(np.searchsorted(sizes, budget, side="right")))
        if count > _FEW and begin + count < len(order):
            count -= count % 4
        end = begin + count
        batches.append(order[begin:end])
        begin = end
    return batches


class BatchOrder:
    """Which pairs form the batches of each epoch."""

    def __init__(
        self,
        src_lengths: NDArray[np.int32],
        tgt_lengths: NDArray[np.int32],
        batch_tokens: int,
        seed: int,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        """`weights` is how often each pair is used per epoch; the fraction of a weight is a probability."""
        self.src_lengths = src_lengths
        self.longest = np.maximum(src_lengths, tgt_lengths)
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.weights = weights

    def epoch(self, number: int) -> list[Rows]:
        """The batches of an epoch, in random order: pairs of similar lengths, repeated by their weights."""
        generator = np.random.Generator(np.random.PCG64([self.seed, number]))
        rows = np.arange(len(self.longest))
        if self.weights is not None:
            whole = np.floor(self.weights)
            rows = rows.repeat((whole + (generator.random(len(rows)) < self.weights - whole)).astype(np.int64))
        shuffled = generator.permutation(rows)
        batches = []
        for begin in range(0, len(shuffled), _POOL):
            pool = shuffled[begin : begin + _POOL]
            by_length = np.lexsort((self.src_lengths[pool], self.longest[pool]))  # stable: ties stay shuffled
            batches += token_batches(self.longest, self.batch_tokens, pool[by_length])
        return [batches[index] for index in generator.permutation(len(batches))]


class _Prefetched(NamedTuple):
    """A batch and the position of the next one, or an error."""

    batch: Batch | None
    epoch: int
    position: int
    error: BaseException | None = None


class BatchStream:
    """The batches of all epochs, without end, collated in advance by a thread.

    `epoch` and `position` are those of the next batch; a stream made from them continues with the same batches. One of
    several processes gets its part of each batch.
    """

    def __init__(
        self,
        dataset: PairDataset,
        order: BatchOrder,
        epoch: int = 0,
        position: int = 0,
        rank: int = 0,
        size: int = 1,
        pinned: bool = False,
        respell: Respell | None = None,
    ) -> None:
        if len(dataset) == 0:
            raise DataError(
                "There are no pairs to make batches from. Check the corpus, data.max_length and data.max_ratio."
            )
        self.epoch = epoch
        self.position = position
        self._queue: queue.Queue[_Prefetched] = queue.Queue(_AHEAD)
        # The thread must not hold a reference to the stream, or the stream would never be collected.
        stopped = threading.Event()
        collated = partial(collate_shard, dataset, rank=rank, size=size, respell=respell)
        work = (
            partial(_collate_pinned, collated) if pinned else collated,
            order,
            epoch,
            position,
            self._queue,
            stopped,
        )
        thread = threading.Thread(target=_prefetch, args=work, name="batches", daemon=True)
        thread.start()
        self._finalizer: Callable[[], Any] = weakref.finalize(self, _end, thread, stopped)
        self._stopped = stopped

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._stopped.is_set():
            raise StopIteration
        item = self._queue.get()
        if item.batch is None:
            self.close()
            assert item.error is not None
            raise item.error
        self.epoch, self.position = item.epoch, item.position
        return item.batch

    def close(self) -> None:
        """End the thread; the stream gives no more batches."""
        self._finalizer()


def _collate_pinned(collated: Callable[..., Batch], rows: Rows, epoch: int) -> Batch:
    return collated(rows, epoch=epoch).pinned()


def _prefetch(
    collated: Callable[..., Batch],
    order: BatchOrder,
    epoch: int,
    position: int,
    out: queue.Queue[_Prefetched],
    stopped: threading.Event,
) -> None:
    try:
        for rows, now, next_epoch, next_position in _places(order, epoch, position):
            if not _put(out, _Prefetched(collated(rows, epoch=now), next_epoch, next_position), stopped):
                return
    except BaseException as error:
        _put(out, _Prefetched(None, 0, 0, error), stopped)


def _places(order: BatchOrder, epoch: int, position: int) -> Iterator[tuple[Rows, int, int, int]]:
    """The rows of each batch from a position on, with its epoch and the next position."""
    while True:
        batches = order.epoch(epoch)
        for place in range(position, len(batches)):
            last = place == len(batches) - 1
            yield batches[place], epoch, epoch + last, 0 if last else place + 1
        epoch, position = epoch + 1, 0


def _put(out: queue.Queue[_Prefetched], item: _Prefetched, stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            out.put(item, timeout=_TICK)
            return True
        except queue.Full:
            continue
    return False


def _end(thread: threading.Thread, stopped: threading.Event) -> None:
    stopped.set()
    if thread is not threading.current_thread():  # the garbage collector may run in this thread
        thread.join()
