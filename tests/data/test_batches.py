"""Batches hold every pair once, within the budget, in an order that can be taken up anywhere."""

import gc
import threading
import time
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from translate.data.batches import (
    Batch,
    BatchOrder,
    BatchStream,
    collate,
    collate_shard,
    collate_source,
    token_batches,
)
from translate.data.dataset import PairDataset
from translate.errors import DataError
from translate.text.tokenizer import BOS, EOS, PAD

SENTENCES = st.lists(st.integers(4, 50), max_size=7)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=30)


def make_dataset(num_pairs: int = 40, seed: int = 3) -> PairDataset:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 12, (num_pairs, 2))
    return PairDataset.from_pairs(
        [([4 + row] * int(src), [5 + row] * int(tgt)) for row, (src, tgt) in enumerate(lengths)]
    )


def order_of(dataset: PairDataset, batch_tokens: int = 30, seed: int = 1) -> BatchOrder:
    return BatchOrder(dataset.src_lengths, dataset.tgt_lengths, batch_tokens, seed)


def assert_equal(one: Batch, other: Batch) -> None:
    for field in fields(Batch):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, Tensor):
            assert torch.equal(left, right), field.name
        else:
            assert np.array_equal(left, right), field.name


def threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


@settings(deadline=None)
@given(PAIRS, st.data())
def test_a_batch_holds_its_pairs_and_padding(pairs: list[tuple[list[int], list[int]]], data: st.DataObject) -> None:
    dataset = PairDataset.from_pairs(pairs)
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(pairs))), min_size=1, max_size=9)))
    batch = collate(dataset, rows)
    longest_src = max(len(pairs[row][0]) for row in rows) + 1
    longest_tgt = max(len(pairs[row][1]) for row in rows) + 1
    assert batch.src.shape == batch.src_valid.shape == (len(rows), longest_src)
    assert batch.tgt_in.shape == batch.tgt_out.shape == batch.tgt_valid.shape == (len(rows), longest_tgt)
    for place, row in enumerate(rows):
        src, tgt = pairs[row]
        assert batch.src[place].tolist() == [*src, EOS] + [PAD] * (longest_src - len(src) - 1)
        assert batch.tgt_in[place].tolist() == [BOS, *tgt] + [PAD] * (longest_tgt - len(tgt) - 1)
        assert batch.tgt_out[place].tolist() == [*tgt, EOS] + [PAD] * (longest_tgt - len(tgt) - 1)
    assert torch.equal(batch.src_valid, batch.src != PAD)
    assert torch.equal(batch.tgt_valid, batch.tgt_out != PAD)
    assert batch.src_lengths.tolist() == batch.src_valid.sum(1).tolist()
    assert batch.num_tokens == int(batch.tgt_valid.sum())
    assert batch.rows.tolist() == rows.tolist()
    assert {batch.src.dtype, batch.tgt_in.dtype, batch.tgt_out.dtype, batch.src_lengths.dtype} == {torch.int64}


def test_sources_alone_are_padded_the_same_way() -> None:
    src, valid, lengths = collate_source([[7, 8, 9], [], [4]])
    assert src.tolist() == [[7, 8, 9, EOS], [EOS, PAD, PAD, PAD], [4, EOS, PAD, PAD]]
    assert valid.tolist() == [[True] * 4, [True, False, False, False], [True, True, False, False]]
    assert lengths.tolist() == [4, 1, 2]
    assert collate_source([])[0].shape == (0, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_are_dealt_there_and_back_by_length(size: int) -> None:
    dataset = PairDataset.from_pairs([([5], [6] * length) for length in (3, 9, 1, 7, 5, 8, 2, 4, 6)])
    rows = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8])
    shares = [collate_shard(dataset, rows, rank, size) for rank in range(size)]
    longest_first = [1, 5, 3, 8, 4, 7, 0, 6, 2]
    dealt: list[list[int]] = [[] for _ in range(size)]
    turns = [*range(size), *reversed(range(size))] * 9
    for row, rank in zip(longest_first, turns, strict=False):
        dealt[rank].append(row)
    assert [share.rows.tolist() for share in shares] == dealt
    assert {share.num_tokens for share in shares} == {45 + 9}, "those of the whole batch"
    assert sum(int(share.tgt_valid.sum()) for share in shares) == 54


def test_a_process_without_a_pair_gets_one_that_does_not_count() -> None:
    dataset = PairDataset.from_pairs([([5], [6, 7]), ([8, 9], [4])])
    shares = [collate_shard(dataset, np.array([1, 0]), rank, 3) for rank in range(3)]
    assert [share.rows.tolist() for share in shares] == [[0], [1], [1]]
    assert [int(share.tgt_valid.sum()) for share in shares] == [3, 2, 0]
    assert {share.num_tokens for share in shares} == {5}


def test_a_moved_batch_keeps_its_lengths_on_the_cpu() -> None:
    batch = collate(make_dataset(), np.arange(5))
    moved = batch.to("meta")
    assert {moved.src.device.type, moved.src_valid.device.type, moved.tgt_valid.device.type} == {"meta"}
    assert {moved.tgt_in.device.type, moved.tgt_out.device.type} == {"meta"}
    assert moved.src_lengths.device.type == "cpu"
    assert_equal(batch.to("cpu"), batch)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 40), max_size=60) | st.lists(st.integers(1, 3), min_size=60, max_size=150),
    st.integers(1, 100),
    st.booleans(),
)
def test_cuts_keep_the_order_and_the_budget(lengths: list[int], budget: int, is_sorted: bool) -> None:
    array = np.array(lengths, dtype=np.int32)
    order = np.argsort(array, kind="stable") if is_sorted else np.arange(len(array))
    batches = token_batches(array, budget, order)
    assert [row for batch in batches for row in batch] == order.tolist()
    for place, batch in enumerate(batches):
        assert len(batch) == 1 or len(batch) * array[batch].max() <= budget
        if place + 1 == len(batches):
            continue
        more = 1 if len(batch) < 32 else 4  # and no batch could have taken one more, a large one four
        longer = np.concatenate([batch, *batches[place + 1 :]])[: len(batch) + more]
        assert len(longer) * array[longer].max() > budget or len(longer) < len(batch) + more
        assert len(batch) <= 32 or len(batch) % 4 == 0


@pytest.mark.parametrize(("budget", "first"), [(31, 31), (32, 32), (33, 32), (35, 32), (36, 36), (39, 36), (40, 40)])
def test_more_than_32_pairs_are_a_multiple_of_four(budget: int, first: int) -> None:
    batches = token_batches(np.ones(100, np.int32), budget, np.arange(100))
    assert len(batches[0]) == first
    assert len(token_batches(np.ones(39, np.int32), 39, np.arange(39))) == 1, "the last one is whole"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=80),
    st.integers(1, 120),
    st.integers(0, 5),
    st.sampled_from([7, 100_000]),
)
def test_an_epoch_has_every_pair_once(lengths: list[tuple[int, int]], budget: int, epoch: int, pool: int) -> None:
    src, tgt = np.array(lengths, dtype=np.int32).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("translate.data.batches._POOL", pool)
        batches = BatchOrder(src, tgt, budget, 1).epoch(epoch)
    assert sorted(int(row) for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(src[batch].max(), tgt[batch].max()) <= budget


def as_lists(batches: Sequence[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    dataset = make_dataset(400)
    order = order_of(dataset)
    first = as_lists(order.epoch(0))
    later = as_lists(order.epoch(3))
    assert as_lists(order_of(dataset).epoch(3)) == later
    assert as_lists(order.epoch(0)) == first
    assert first != later
    assert as_lists(order_of(dataset, seed=2).epoch(0)) != first


def test_weights_say_how_often_a_pair_is_seen() -> None:
    """Whole numbers exactly, the rest by chance, which falls anew in each epoch."""
    wanted = np.repeat([0.0, 1.0, 2.0, 0.3, 2.75], 1000)
    lengths = np.full(len(wanted), 5, dtype=np.int32)
    order = BatchOrder(lengths, lengths, 200, 1, wanted)
    seen = np.array([np.bincount(np.concatenate(order.epoch(epoch)), minlength=5000) for epoch in range(3)])
    parts = seen.reshape(3, 5, 1000)
    assert set(parts[:, 0].flat) == {0}
    assert set(parts[:, 1].flat) == {1}
    assert set(parts[:, 2].flat) == {2}
    assert set(parts[:, 3].flat) == {0, 1}
    assert set(parts[:, 4].flat) == {2, 3}
    np.testing.assert_allclose(parts.mean(axis=2), np.tile([0, 1, 2, 0.3, 2.75], (3, 1)), atol=0.06)  # four deviations
    assert not np.array_equal(parts[0, 3], parts[1, 3])
    both = (parts[0, 3] & parts[1, 3]).mean()
    assert both == pytest.approx(0.09, abs=0.04), "one epoch's draw says nothing of the next one's"
    again = BatchOrder(lengths, lengths, 200, 1, wanted)
    assert as_lists(again.epoch(2)) == as_lists(order.epoch(2))
    assert len({len(batch) for batch in order.epoch(0)}) <= 2, "a pair that comes twice is two pairs of a batch"


def test_pairs_of_one_length_meet_others_in_each_epoch() -> None:
    lengths = np.full(100, 5, dtype=np.int32)
    order = BatchOrder(lengths, lengths, 50, 1)
    groups = [{frozenset(batch.tolist()) for batch in order.epoch(epoch)} for epoch in (0, 1)]
    assert groups[0].isdisjoint(groups[1])


def test_batches_hold_little_padding_and_come_in_random_order() -> None:
    generator = np.random.default_rng(0)
    src = generator.integers(1, 60, 20_000).astype(np.int32)
    tgt = np.clip(src + generator.integers(-4, 5, 20_000), 1, None).astype(np.int32)
    batches = BatchOrder(src, tgt, 1000, 1).epoch(0)
    room = sum(len(rows) * int(side[rows].max()) for rows in batches for side in (src, tgt))
    assert (int(src.sum()) + int(tgt.sum())) / room > 0.9
    longest = np.array([src[rows].max() for rows in batches])
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.15


def test_a_million_pairs_are_ordered_in_about_a_second() -> None:
    generator = np.random.default_rng(0)
    src, tgt = generator.integers(1, 100, (2, 1_000_000)).astype(np.int32)
    order = BatchOrder(src, tgt, 2000, 1)
    start = time.process_time()
    batches = order.epoch(0)
    assert time.process_time() - start < 3  # 0.6 s on an idle machine
    assert sum(map(len, batches)) == 1_000_000


def test_the_stream_gives_the_epochs_in_turn() -> None:
    dataset = make_dataset()
    order = order_of(dataset)
    wanted = [sorted(rows.tolist()) for epoch in (0, 1, 2) for rows in order.epoch(epoch)]
    stream = BatchStream(dataset, order)
    batches = [next(stream) for _ in wanted]
    assert [sorted(batch.rows.tolist()) for batch in batches] == wanted
    for batch in batches:  # the longest targets first, whatever the order of the epoch
        lengths = batch.tgt_valid.sum(dim=1).tolist()
        assert lengths == dataset.tgt_lengths[batch.rows].tolist()
        assert lengths == sorted(lengths, reverse=True)
    assert (stream.epoch, stream.position) == (3, 0)
    stream.close()


def test_a_stream_made_from_any_place_goes_on_the_same() -> None:
    dataset = make_dataset()
    order = order_of(dataset)
    num_batches = len(order.epoch(0)) + len(order.epoch(1))
    stream = BatchStream(dataset, order)
    places, batches = [], []
    for _ in range(num_batches + 5):
        places.append((stream.epoch, stream.position))
        batches.append(next(stream))
    stream.close()
    assert len(set(places)) == len(places)
    for start in range(num_batches):
        again = BatchStream(dataset, order_of(dataset), *places[start])
        for wanted in batches[start : start + 5]:
            assert_equal(next(again), wanted)
        again.close()


def test_a_place_at_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    dataset = make_dataset()
    order = order_of(dataset)
    stream = BatchStream(dataset, order, epoch=0, position=len(order.epoch(0)))
    assert sorted(next(stream).rows.tolist()) == sorted(order.epoch(1)[0].tolist())
    assert (stream.epoch, stream.position) == (1, 1)
    stream.close()


def test_the_place_is_of_what_was_handed_out() -> None:
    dataset = make_dataset()
    stream = BatchStream(dataset, order_of(dataset))
    for _ in range(3):
        time.sleep(0.1)  # the thread runs ahead
        next(stream)
    time.sleep(0.1)
    assert (stream.epoch, stream.position) == (0, 3)
    stream.close()


def test_closing_ends_the_thread_and_the_batches() -> None:
    before = threads()
    stream = BatchStream(make_dataset(), order_of(make_dataset()))
    next(stream)
    assert threads() == before + 1
    stream.close()
    stream.close()
    assert threads() == before
    assert list(stream) == []


def test_a_forgotten_stream_ends_its_thread() -> None:
    before = threads()
    stream = BatchStream(make_dataset(), order_of(make_dataset()))
    next(stream)
    del stream
    gc.collect()
    assert threads() == before


def test_an_error_in_the_thread_reaches_the_loop() -> None:
    dataset = make_dataset(5)
    larger = order_of(make_dataset(50))  # names rows the data set does not have
    before = threads()
    stream = BatchStream(dataset, larger)
    with pytest.raises(IndexError):
        list(stream)
    assert threads() == before
    assert list(stream) == []


def test_an_empty_data_set_is_refused() -> None:
    dataset = PairDataset.from_pairs([])
    assert order_of(dataset).epoch(0) == []
    with pytest.raises(DataError, match="no pairs"):
        BatchStream(dataset, order_of(dataset))
