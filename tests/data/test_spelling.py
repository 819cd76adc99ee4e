"""Subword regularisation: the same text in other pieces, chosen by seed, epoch, line and side alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from translate.config import TokenizerConfig
from translate.data.batches import BatchOrder, BatchStream, collate_shard
from translate.data.dataset import PairDataset
from translate.data.spelling import Spelling
from translate.text.tokenizer import UNK, Tokenizer, train_tokenizer

DEMO = Path(__file__).parents[2] / "data" / "demo"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return (DEMO / "train.fr").read_text(encoding="utf-8").split("\n")[:400]


@pytest.fixture(scope="module")
def tokenizer(lines: list[str]) -> Tokenizer:
    return Tokenizer(train_tokenizer(lines, TokenizerConfig(vocabulary=500), 1, lambda _: None))


@pytest.fixture(scope="module")
def dataset(lines: list[str], tokenizer: Tokenizer) -> PairDataset:
    ids = tokenizer.encode_all(lines[:60])
    return PairDataset.from_pairs(list(zip(ids, ids, strict=True)))


def spelling(tokenizer: Tokenizer, number: int = 16, alpha: float = 0.2, seed: int = 3, longest: int = 0) -> Spelling:
    return Spelling(tokenizer, tokenizer, number, alpha, seed, longest)


def test_the_text_stays_and_the_pieces_change(tokenizer: Tokenizer, lines: list[str]) -> None:
    draw = spelling(tokenizer)
    changed = 0
    for number, line in enumerate([*lines[:50], "日本 and emoji 🙂", "  two  spaces "]):
        ids = tokenizer.encode(line)
        for drawn in draw(1, number, ids, ids):
            assert tokenizer.decode(drawn) == tokenizer.decode(ids)
            changed += drawn != ids
    assert changed > 30


def test_the_choice_is_a_function_of_seed_epoch_line_and_side(tokenizer: Tokenizer, lines: list[str]) -> None:
    ids = tokenizer.encode(max(lines, key=len))
    first = spelling(tokenizer)(4, 7, ids, ids)
    spelling(tokenizer)(1, 1, ids, ids)
    assert spelling(tokenizer)(4, 7, ids, ids) == first
    drawn = {
        "epoch": {tuple(spelling(tokenizer)(epoch, 7, ids, ids)[0]) for epoch in range(20)},
        "line": {tuple(spelling(tokenizer)(4, line, ids, ids)[0]) for line in range(20)},
        "seed": {tuple(spelling(tokenizer, seed=seed)(4, 7, ids, ids)[0]) for seed in range(20)},
        "side": {tuple(side) for line in range(20) for side in spelling(tokenizer)(4, line, ids, ids)},
    }
    assert all(len(ways) > 3 for ways in drawn.values()), {name: len(ways) for name, ways in drawn.items()}
    assert any(len(set(map(tuple, spelling(tokenizer)(4, line, ids, ids)))) == 2 for line in range(20))


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_spellings_come_by_their_probability(tokenizer: Tokenizer, lines: list[str], alpha: float) -> None:
    ids = tokenizer.encode(lines[3])
    ways, scores = tokenizer.spellings(ids, 4)
    assert ways[0] == ids
    assert list(scores) == sorted(scores, reverse=True)
    wanted = np.exp(alpha * scores) / np.exp(alpha * scores).sum()
    draw = spelling(tokenizer, number=4, alpha=alpha)
    counts = Counter(tuple(draw(epoch, 1, ids, [])[0]) for epoch in range(4000))
    for way, share in zip(ways, wanted, strict=True):
        assert counts[tuple(way)] / 4000 == pytest.approx(share, abs=0.035)


def test_nothing_longer_than_training_takes_and_nothing_lost(tokenizer: Tokenizer, lines: list[str]) -> None:
    ids = tokenizer.encode(lines[0])
    short = spelling(tokenizer, longest=len(ids))
    assert all(len(short(epoch, 1, ids, ids)[0]) <= len(ids) for epoch in range(30))
    longer = spelling(tokenizer, longest=len(ids) + 1, alpha=0.0)
    assert max(len(longer(epoch, 1, ids, ids)[0]) for epoch in range(60)) == len(ids) + 1
    assert spelling(tokenizer, longest=1)(1, 1, ids, ids) == (ids, ids), "no way is so short"
    unknown = [*ids, UNK]
    assert spelling(tokenizer)(1, 1, unknown, unknown) == (unknown, unknown)
    assert spelling(tokenizer)(1, 1, [], [])[0] == []


def test_a_stream_goes_on_with_the_same_spellings(dataset: PairDataset, tokenizer: Tokenizer) -> None:
    order = BatchOrder(dataset.src_lengths, dataset.tgt_lengths, 300, seed=5)

    def stream(epoch: int = 0, position: int = 0) -> BatchStream:
        return BatchStream(dataset, order, epoch, position, respell=spelling(tokenizer))

    straight = stream()
    places = [(straight.epoch, straight.position)]
    batches = []
    for _ in range(3 * len(order.epoch(0))):
        batches.append(next(straight))
        places.append((straight.epoch, straight.position))
    straight.close()
    for cut in (1, len(order.epoch(0)) - 1, len(order.epoch(0)) + 2):
        again = stream(*places[cut])
        for batch in batches[cut : cut + 4]:
            other = next(again)
            assert batch.src.equal(other.src)
            assert batch.tgt_out.equal(other.tgt_out)
        again.close()
    assert {batch.num_tokens for batch in batches} != {int(dataset.tgt_lengths[b.rows].sum()) for b in batches}


def test_the_shares_of_processes_are_one_batch(dataset: PairDataset, tokenizer: Tokenizer) -> None:
    rows = np.arange(11)
    whole = collate_shard(dataset, rows, 0, 1, epoch=2, respell=spelling(tokenizer))
    shards = [collate_shard(dataset, rows, rank, 3, epoch=2, respell=spelling(tokenizer)) for rank in range(3)]
    assert {shard.num_tokens for shard in shards} == {whole.num_tokens}
    assert sum(int(shard.tgt_valid.sum()) for shard in shards) == whole.num_tokens
    lengths = dict(zip(whole.rows.tolist(), whole.src_lengths.tolist(), strict=True))
    for shard in shards:
        assert [lengths[row] for row in shard.rows.tolist()] == shard.src_lengths.tolist()
