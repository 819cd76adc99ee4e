"""Small models of every kind learn to copy and to reverse digits, and their attention shows how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from translate.config import ModelConfig, SearchConfig, check_config
from translate.data.batches import collate, collate_source
from translate.data.dataset import PairDataset
from translate.decoding.aligner import align
from translate.decoding.greedy import greedy
from translate.decoding.translator import Translator
from translate.models.attention import SCOPES, SELECTIONS
from translate.models.decoders import DECODERS
from translate.models.encoders import ENCODERS
from translate.models.scores import SCORES
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.training.averaging import MovingAverage
from translate.training.extra_losses import RewardScale, extra_losses
from translate.training.logging import Reporter
from translate.training.loss import sequence_loss
from translate.training.train import train

WIDTH, ROWS, UPDATES, PEAK, WARMUP, AVERAGE = 32, 64, 600, 9e-3, 40, 0.8
NUM_TESTS, EVERY = 100, 25
DIGITS = range(4, 14)
COPY, REVERSE = 14, 15  # the first token says what is to be made of the digits that follow
TRAINED_NAMES, HELD_OUT_NAMES = range(16, 32), range(32, 42)
RIGHT, DIAGONAL = 0.9, 0.8  # shares of test sentences and of links

Overrides = dict[str, object]
Pair = tuple[list[int], list[int]]


def members() -> dict[str, Overrides]:
    """Each member of the zoo as the only difference from the default, and what can be added to any of them."""
    found: dict[str, Overrides] = {f"encoder-{name}": {"encoder.kind": name} for name in ENCODERS}
    found |= {f"decoder-{name}": {"decoder.kind": name} for name in DECODERS}
    found["decoder-tutorial"] |= {"attention.score": "location"}
    found["luong-unfed"] = {"decoder.kind": "luong", "decoder.input_feeding": False}
    found |= {f"score-{name}": {"attention.score": name} for name in SCORES}
    found |= {f"scope-{name}": {"attention.scope": name, "attention.window": 2} for name in SCOPES if name != "global"}
    found |= {f"selection-{name}": {"attention.selection": name} for name in SELECTIONS}
    found |= {
        "heads": {"attention.heads": 4},
        "hops": {"attention.hops": 2},
        "per-feature": {"attention.per_feature": True},
        "coverage": {"attention.coverage": True},
        "copy": {"decoder.copy": True},
        "lstm-cell": {"decoder.cell": "lstm"},
    }
    same = [name for name in found if name != "encoder-bigru" and not _differs(found[name])]
    return {name: overrides for name, overrides in found.items() if name not in same}


def _differs(overrides: Overrides) -> bool:
    return model_config(overrides) != model_config({})


def model_config(overrides: Overrides) -> ModelConfig:
    sections: dict[str, dict[str, object]] = {
        "embedding": {"width": WIDTH, "dropout": 0.0, "tied": "three"},
        "encoder": {"width": WIDTH, "dropout": 0.0},
        "attention": {"width": WIDTH},
        "decoder": {"width": WIDTH, "dropout": 0.0},
    }
    for key, value in overrides.items():
        section, name = key.split(".")
        sections[section][name] = value
    return ModelConfig.model_validate(sections)


@dataclass(frozen=True)
class Task:
    """Random strings, and what is to be made of them."""

    orders: tuple[int, ...]
    shortest: int = 3
    longest: int = 8
    num_names: int = 0  # rare tokens in each string

    def pairs(self, count: int, order: int, generator: np.random.Generator, names: Sequence[int]) -> list[Pair]:
        pairs = []
        strings = generator.integers(DIGITS.start, DIGITS.stop, (count, self.longest))
        for row, length in zip(strings, generator.integers(self.shortest, self.longest + 1, count), strict=True):
            src = row[:length]
            if self.num_names:
                src[generator.permutation(length)[: self.num_names]] = generator.choice(names, self.num_names)
            pairs.append(([order, *src.tolist()], src[::-1].tolist() if order == REVERSE else src.tolist()))
        return pairs


class Outcome(NamedTuple):
    """How well a model did on strings it had not seen."""

    right: float  # share of strings
    looked: float  # share of steps whose greatest weight lies on the token to be written


def outcome_of(model: Seq2Seq, task: Task, order: int) -> Outcome:
    pairs = task.pairs(NUM_TESTS, order, np.random.default_rng(99), HELD_OUT_NAMES)
    model.eval()
    with torch.inference_mode():
        source = model.encode(*collate_source([src for src, _ in pairs]))
        found = greedy(model, source, SearchConfig())
    right, looked = [], []
    for (_, tgt), hypothesis in zip(pairs, found, strict=True):
        right.append(list(hypothesis.tokens) == tgt)
        if right[-1] and hypothesis.weights is not None:
            places = 1 + np.arange(len(tgt))
            looked += (hypothesis.weights[:-1].argmax(axis=1) == places[:: -1 if order == REVERSE else 1]).tolist()
    return Outcome(float(np.mean(right)), float(np.mean(looked)) if looked else math.nan)


def new_model(overrides: Overrides) -> Seq2Seq:
    torch.manual_seed(1)
    return Seq2Seq(model_config(overrides), HELD_OUT_NAMES.stop, HELD_OUT_NAMES.stop, 1 + Task.longest)


def learn(
    model: Seq2Seq, task: Task, diagonal: bool = False, rows: int = ROWS, tested: Task | None = None
) -> dict[int, Outcome]:
    """Train until strings (and the links of copies, where asked) are right, or the updates are used up.

    `tested`, where it is another task, says when to stop.
    """
    torch.set_num_threads(1)
    torch.manual_seed(1)
    generator = np.random.default_rng(1)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    average = MovingAverage(model, AVERAGE)  # as good as smaller steps would be, and sooner
    rewards, outcomes = RewardScale(), dict[int, Outcome]()
    for update in range(UPDATES):
        wave = (1 + math.cos(math.pi * update / UPDATES)) / 2
        optimizer.param_groups[0]["lr"] = PEAK * min(1.0, (update + 1) / WARMUP) * wave
        each = rows // len(task.orders)
        pairs = [pair for order in task.orders for pair in task.pairs(each, order, generator, TRAINED_NAMES)]
        batch = collate(PairDataset.from_pairs(pairs), np.arange(len(pairs)))
        model.train()
        source = model.encode(batch.src, batch.src_valid, batch.src_lengths, update / UPDATES)
        decoded = model.decoder(batch.tgt_in, source)
        loss = sequence_loss(model, decoded, source, batch.tgt_out, batch.tgt_valid, 0.0)
        attention = model.decoder.config.attention
        extra = extra_losses(decoded, loss.gold, batch.tgt_valid, attention, rewards)
        optimizer.zero_grad()
        (sum(extra.values(), loss.smoothed) / batch.num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(update + 1)
        if (update + 1) % EVERY == 0:
            with average.in_place():
                outcomes = {order: outcome_of(model, tested or task, order) for order in task.orders}
            seen = not diagonal or COPY not in outcomes or outcomes[COPY].looked >= DIAGONAL
            if seen and all(outcome.right >= RIGHT for outcome in outcomes.values()):
                break
    return outcomes


MEMBERS = members()
UNMOVED = ("decoder-plain", "score-linear", "score-static")  # one look, or none, has to do for all words
ONE_BY_ONE = (
    "decoder-tutorial",
    "scope-local_p",
    "selection-hard_reinforce",
)  # each order from the start, on more rows
FORGETFUL = ("scope-local_m",)  # the window moves on from where reversal begins


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_learns_to_copy_and_to_reverse(name: str) -> None:
    """Both in one model, which is told which it shall do: one update in two teaches each."""
    moves = name not in UNMOVED
    shortest, longest = (3, 8) if moves else (2, 4)
    orders = (COPY,) if name in FORGETFUL else (COPY, REVERSE)
    outcomes = dict[int, Outcome]()
    for some in [(order,) for order in orders] if name in ONE_BY_ONE else [orders]:
        rows = 2 * ROWS if name in ONE_BY_ONE else ROWS
        outcomes |= learn(new_model(MEMBERS[name]), Task(some, shortest, longest), moves, rows=rows)
    assert all(outcome.right >= RIGHT for outcome in outcomes.values())
    looked = outcomes[COPY].looked
    if moves:
        assert looked >= DIAGONAL
    elif name == "decoder-plain":
        assert math.isnan(looked)
    else:
        assert looked < 0.6


@pytest.mark.slow
def test_only_copying_passes_on_names_it_never_saw() -> None:
    task = Task((COPY,), num_names=1)
    assert learn(new_model({"decoder.copy": True}), task)[COPY].right >= 0.9
    without, digits = new_model({}), Task((COPY,))
    assert learn(without, task, tested=digits)[COPY].right >= 0.9  # it can copy, only not what it has no word for
    assert outcome_of(without, task, COPY).right <= 0.1


@pytest.mark.slow
def test_a_whole_run_learns_to_reverse_and_shows_it(tmp_path: Path) -> None:
    """From text files to links, by the commands' own functions."""
    generator = np.random.default_rng(7)
    strings: dict[str, None] = {}
    while len(strings) < 1650:
        strings[" ".join(map(str, generator.integers(0, 10, generator.integers(3, 8))))] = None
    lines = list(strings)
    for name, some in (("train", lines[:1500]), ("valid", lines[1500:1550]), ("test", lines[1550:])):
        (tmp_path / f"{name}.a").write_text("".join(f"{line}\n" for line in some))
        (tmp_path / f"{name}.b").write_text("".join(f"{line[::-1]}\n" for line in some))
    tree = {
        "data": {"folder": str(tmp_path), "source_lang": "a", "target_lang": "b"},
        "tokenizer": {"vocabulary": 32, "byte_fallback": False},
        "model": model_config({}).model_dump(),
        "train": {
            "steps": 240,
            "threads": 1,
            "batch_tokens": 400,
            "learning_rate": PEAK,
            "warmup": WARMUP,
            "label_smoothing": 0.0,
            "valid_every": 240,
        },
        "search": {"beam": 2},
        "logging": {"tensorboard": False, "samples": 0, "pictures": False},
    }
    run = Run(tmp_path / "run")
    train(check_config(tree, origin="test"), run, resume=False, test=False, reporter=Reporter())
    translator, held_out = Translator.load(run.path), lines[1550:]
    written = [best[0].text for best in translator.translate(held_out)]
    assert np.mean([one == line[::-1] for one, line in zip(written, held_out, strict=True)]) > 0.9
    right = []
    for sentence in align(translator, held_out, [line[::-1] for line in held_out]):
        last = len(sentence.source_words) - 1
        links = {link.target: link.source for link in sentence.links}
        right += [links.get(t) == last - t for t in range(last + 1)]
    assert np.mean(right) > 0.85
