"""How fast training is: ours and a textbook loop in alternation, against the machine's own matrix products.

    python scripts/bench_train.py [--json] [--data FOLDER] [--only NAME ...] [--vocabularies N ...] [--rounds N]
    python scripts/bench_train.py --forcing 0.5 [--only NAME ...] [--vocabularies N ...]
    python scripts/bench_train.py --precision bf16 [--only NAME ...] [--vocabularies N ...]

The textbook loop has the same parameters, batches, loss and optimizer, but takes one step at a time, projects the
source again at every step, and forms the vocabulary product and the cross entropy per step over padded positions. Its
encoder is torch's own GRU, where that has what the model asks for.

Without --data the sentences are random pieces of about the lengths of Multi30k; with it, FOLDER holds train.L1 and
train.L2, whose pieces are counted by a tokenizer of each size. --forcing tells instead what it costs to train with the
model's own words in place of some of the reference's, --precision what it gains to form products in half precision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from translate import kernels
from translate.config import Config, TokenizerConfig, check_config
from translate.data.batches import Batch, BatchOrder, BatchStream, collate_shard
from translate.data.dataset import PairDataset
from translate.device import Precision
from translate.machine import cpu_name, tune_process
from translate.models.seq2seq import Seq2Seq
from translate.text.corpus import read_lines
from translate.text.tokenizer import Tokenizer, train_tokenizer
from translate.training.extra_losses import RewardScale
from translate.training.loss import sequence_loss
from translate.training.objective import Objective
from translate.training.optim import build_optimizer

VOCABULARIES = (4000, 8000, 32000)
MOST_PAIRS = 29_000
SMOOTHING = 0.1
WIDE = {
    "model.embedding.width": 256,
    "model.encoder.width": 512,
    "model.attention.width": 512,
    "model.decoder.width": 512,
}
RECIPE = {
    "model.embedding.width": 256,
    "model.encoder.width": 256,
    "model.attention.width": 256,
    "model.decoder.width": 256,
    "model.decoder.kind": "conditional",
    "model.embedding.tied": "three",
    "model.encoder.layer_norm": True,
    "model.decoder.layer_norm": True,
    "model.encoder.summary": "mean",
    "model.embedding.dropout": 0.3,
    "model.encoder.dropout": 0.3,
    "model.decoder.dropout": 0.3,
}
ROWS: dict[str, dict[str, object]] = {
    "bahdanau": {**WIDE, "model.decoder.kind": "bahdanau"},
    "conditional": {**WIDE, "model.decoder.kind": "conditional"},
    "luong": {
        **WIDE,
        "model.decoder.kind": "luong",
        "model.attention.score": "general",
        "model.decoder.input_feeding": False,
    },
    "luong+feeding": {**WIDE, "model.decoder.kind": "luong", "model.attention.score": "general"},
    "plain": {**WIDE, "model.decoder.kind": "plain"},
    "recipe": RECIPE,
}


@dataclass(frozen=True)
class Row:
    """One model at one size."""

    name: str
    vocabulary: int
    threads: int
    flops_per_token: float
    tokens_per_second: float
    textbook_tokens_per_second: float
    ratio: float
    peak_share: float  # of torch's own product of 1024 × 1024 matrices, sgemm
    best_share: float  # of the fastest product of that size that a library here has
    peak_memory_mb: float
    loader_share: float


def settings(row: Mapping[str, object]) -> Config:
    """The configuration of a row; batches of 64 sentences of 15 pieces."""
    tree: dict[str, object] = {
        "data": {"folder": "-", "source_lang": "a", "target_lang": "b"},
        "train": {"steps": 1, "batch_tokens": 64 * 15, "label_smoothing": SMOOTHING},
    }
    for key, value in row.items():
        *parents, last = key.split(".")
        section = tree
        for part in parents:
            section = section.setdefault(part, {})  # type: ignore[assignment]
        section[last] = value
    return check_config(tree, origin="bench_train")


def random_pairs(vocabulary: int) -> PairDataset:
    """Sentences of random pieces; lengths as in Multi30k, 14 source and 15 target pieces on average."""
    generator = np.random.default_rng(1)
    src = np.clip(generator.gamma(9.0, 13 / 9.0, MOST_PAIRS).round(), 3, 50).astype(int)
    tgt = np.clip((src * generator.normal(1.08, 0.15, MOST_PAIRS)).round(), 3, 60).astype(int)
    draw = generator.integers
    return PairDataset.from_pairs(
        [(draw(4, vocabulary, s), draw(4, vocabulary, t)) for s, t in zip(src, tgt, strict=True)]
    )


def learn_pieces(folder: Path, vocabulary: int) -> tuple[list[Path], list[list[str]], Tokenizer]:
    """The two training files of a folder, their first lines, and a tokenizer that has learnt from them."""
    files = sorted(folder.glob("train.*"))
    if len(files) != 2:
        sys.exit(f"{folder} must hold train.L1 and train.L2, and nothing else called train; it has {len(files)}.")
    sides = [[line for _, line in zip(range(MOST_PAIRS), read_lines(file), strict=False)] for file in files]
    config = TokenizerConfig(vocabulary=vocabulary)
    lines, say = [line for side in sides for line in side], partial(print, file=sys.stderr)
    return files, sides, Tokenizer(train_tokenizer(lines, config, 1, say))


def corpus_pairs(folder: Path, vocabulary: int) -> PairDataset:
    """The pieces of a folder's training pairs."""
    _, sides, tokenizer = learn_pieces(folder, vocabulary)
    src, tgt = (tokenizer.encode_all(side) for side in sides)
    return PairDataset.from_pairs([pair for pair in zip(src, tgt, strict=True) if all(pair)])


def ours(model: Seq2Seq, batch: Batch) -> Tensor:
    decoded, source = model(batch.src, batch.src_valid, batch.src_lengths, batch.tgt_in)
    return sequence_loss(model, decoded, source, batch.tgt_out, batch.tgt_valid, SMOOTHING).smoothed


def torch_gru(inputs: Tensor, start: Tensor, input: nn.Linear, recurrent: nn.Linear, extra: nn.Linear | None) -> Tensor:
    assert extra is None, "an encoder's layers read nothing but their inputs"
    weights = [input.weight, recurrent.weight, input.bias, recurrent.bias]
    return torch.gru(inputs, start.unsqueeze(0), weights, True, 1, 0.0, True, False, True)[0]


def textbook(model: Seq2Seq, batch: Batch) -> Tensor:
    decoder = model.decoder
    with mock.patch.object(kernels, "gru", torch_gru):
        source = model.encode(batch.src, batch.src_valid, batch.src_lengths)
    state, losses = decoder.start(source), []
    for t in range(batch.tgt_in.size(1)):
        seen = replace(source, cache=decoder.prepare(source.memory, source.valid))
        features, state, weights = decoder.step(batch.tgt_in[:, t], state, seen)
        log_probs = decoder.output.log_probs(features, weights, seen)  # (B, V)
        gold = log_probs.gather(1, batch.tgt_out[:, t : t + 1]).squeeze(1)  # (B,)
        smoothed = -(1 - SMOOTHING) * gold - SMOOTHING * log_probs.mean(dim=1)
        losses.append((smoothed * batch.tgt_valid[:, t]).sum())
    return torch.stack(losses).sum()


Loss = Callable[[Seq2Seq, Batch], Tensor]
Way = tuple[str, Callable[[Seq2Seq, Config], Loss]]  # what it is called, and how it is made for a model


def update(model: Seq2Seq, optimizer: torch.optim.Optimizer, batch: Batch, loss: Loss) -> None:
    optimizer.zero_grad(set_to_none=True)
    (loss(model, batch) / batch.num_tokens).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def timed(model: Seq2Seq, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], loss: Loss) -> float:
    began = time.perf_counter()
    for batch in batches:
        update(model, optimizer, batch, loss)
    return time.perf_counter() - began


SIZE = 1024


def flops_of(product: Callable[[], object]) -> float:
    """FLOP/s of a product of SIZE × SIZE matrices over about as long a time as a few updates take."""
    product()
    began = time.perf_counter()
    for _ in range(100):
        product()
    return 100 * 2 * SIZE**3 / (time.perf_counter() - began)


def sgemm_peak() -> float:
    """By torch's own product."""
    one, other, out = (torch.randn(SIZE, SIZE) for _ in range(3))
    return flops_of(lambda: torch.mm(one, other, out=out))


def peaks() -> tuple[float, float]:
    """By torch's own product, and by the fastest there is: that, or oneDNN's with a matrix in the layout it likes."""
    sgemm = sgemm_peak()
    if not torch.backends.mkldnn.is_available():
        return sgemm, sgemm
    one, packed = torch.randn(SIZE, SIZE), torch.ops.mkldnn._reorder_linear_weight(torch.randn(SIZE, SIZE), SIZE)
    onednn = flops_of(lambda: torch.ops.mkldnn._linear_pointwise(one, packed, None, "none", [], ""))
    return sgemm, max(sgemm, onednn)


def addmm_flops(out: Sequence[int], one: Sequence[int], other: Sequence[int], **_: object) -> int:
    """torch counts `addmm` and forgets `addmm_`."""
    return 2 * one[0] * one[1] * other[1]


def product_flops(model: Seq2Seq, optimizer: torch.optim.Optimizer, batches: Sequence[Batch]) -> int:
    """What the products of our updates with these batches need, forward and backward."""
    with (
        kernels.plain("linear"),  # torch does not count the operators of oneDNN
        FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: addmm_flops}) as counter,
    ):
        for batch in batches:
            update(model, optimizer, batch, ours)
    return int(counter.get_total_flops())


def peak_memory(model: Seq2Seq, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Most bytes an update holds at once beyond what was there before and beyond the gradients, in MB."""
    optimizer.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        update(model, optimizer, batch, ours)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    gradients = sum(parameter.numel() * 4 for parameter in model.parameters())
    return (float(np.cumsum([0, *sizes]).max()) - gradients) / 1e6


def loader_share(config: Config, dataset: PairDataset, model: Seq2Seq, optimizer: torch.optim.Optimizer) -> float:
    """The share of training time spent waiting for the next batch."""
    stream = batches_of(config, dataset)
    next(stream)
    waited = worked = 0.0
    for _ in range(12):
        began = time.perf_counter()
        batch = next(stream)
        got = time.perf_counter()
        update(model, optimizer, batch, ours)
        waited, worked = waited + got - began, worked + time.perf_counter() - got
    return waited / (waited + worked)


def batches_of(config: Config, dataset: PairDataset) -> Iterator[Batch]:
    order = BatchOrder(dataset.src_lengths, dataset.tgt_lengths, config.train.batch_tokens, seed=1)
    return BatchStream(dataset, order)


def spread_batches(config: Config, dataset: PairDataset, rounds: int) -> list[list[Batch]]:
    """For each round four batches of an epoch, one from each quarter of its lengths, so that all rounds are alike.

    The ratio to the textbook loop grows with the length of the sentences: from 1.6 at 9 pieces to 3 at 31.
    """
    order = BatchOrder(dataset.src_lengths, dataset.tgt_lengths, config.train.batch_tokens, seed=1)
    by_length = sorted(order.epoch(0), key=lambda rows: int(order.longest[rows].max()))
    places = ((np.arange(4 * rounds) + 0.5) * len(by_length) / (4 * rounds)).astype(int)
    return [
        [collate_shard(dataset, by_length[place], rank=0, size=1) for place in places[one::rounds]]
        for one in range(rounds)
    ]


def measure(name: str, vocabulary: int, dataset: PairDataset, rounds: int) -> Row:
    """Both loops on the same batches, taking turns; speeds are over all rounds, the ratio is the median of rounds."""
    torch.manual_seed(1)
    config = settings(ROWS[name])
    model = Seq2Seq(config.model, vocabulary, vocabulary, config.data.max_length)
    optimizer = build_optimizer(model, config.train)
    by_round = spread_batches(config, dataset, rounds)
    check_equal(model, by_round[0][0])
    model.train()
    seen = [batch for batches in by_round for batch in batches]
    for loss in (ours, textbook):  # what an epoch makes once, as oneDNN's programs for each shape, is made now
        timed(model, optimizer, seen, loss)
    times: list[tuple[float, float]] = []
    found = [peaks()]
    for batches in by_round:
        times.append((timed(model, optimizer, batches, ours), timed(model, optimizer, batches, textbook)))
        found.append(peaks())
    total = sum(batch.num_tokens for batch in seen)
    speed = total / sum(mine for mine, _ in times)
    flops = product_flops(model, optimizer, seen) / total
    longest = max(seen, key=lambda batch: batch.tgt_in.numel())
    return Row(
        name=name,
        vocabulary=vocabulary,
        threads=torch.get_num_threads(),
        flops_per_token=flops,
        tokens_per_second=round(speed, 1),
        textbook_tokens_per_second=round(total / sum(theirs for _, theirs in times), 1),
        ratio=round(statistics.median(theirs / mine for mine, theirs in times), 3),
        peak_share=round(speed * flops / statistics.median(sgemm for sgemm, _ in found), 3),
        best_share=round(speed * flops / statistics.median(best for _, best in found), 3),
        peak_memory_mb=round(peak_memory(model, optimizer, longest), 1),
        loader_share=round(loader_share(config, dataset, model, optimizer), 4),
    )


def in_turns(name: str, vocabulary: int, dataset: PairDataset, rounds: int, ways: tuple[Way, Way]) -> str:
    """Updates in two ways of forming the loss of a model, taking turns; tells what the second is beside the first."""
    torch.manual_seed(1)
    config = settings(ROWS[name])
    model = Seq2Seq(config.model, vocabulary, vocabulary, config.data.max_length).train()
    optimizer = build_optimizer(model, config.train)
    losses = [make(model, config) for _, make in ways]
    by_round = spread_batches(config, dataset, rounds)
    seen = [batch for batches in by_round for batch in batches]
    for loss in losses:
        timed(model, optimizer, seen, loss)
    times = [[timed(model, optimizer, batches, loss) for loss in losses] for batches in by_round]
    total = sum(batch.num_tokens for batch in seen)
    speeds = (total / sum(column) for column in zip(*times, strict=True))
    told = "  ".join(f"{label}: {speed:,.0f} tokens/s" for (label, _), speed in zip(ways, speeds, strict=True))
    cost = statistics.median(second / first for first, second in times)
    return f"{name:<14} V {vocabulary:>6,}  {told}  {cost:.2f} times as long"


def forced(share: float) -> Way:
    """Teacher forcing at this ratio."""

    def make(model: Seq2Seq, config: Config) -> Loss:
        objective = Objective(model, config)
        return lambda _, batch: objective(batch, share, 0.5, RewardScale())[0]

    return f"ratio {share}", make


def in_precision(name: str) -> Way:
    """Products in this number format."""

    def make(model: Seq2Seq, config: Config) -> Loss:
        precision = Precision(name, torch.device("cpu"))

        def loss(model: Seq2Seq, batch: Batch) -> Tensor:
            with precision.autocast():
                return ours(model, batch)

        return loss

    return name, make


def check_equal(model: Seq2Seq, batch: Batch) -> None:
    """Both must be the same function, or their times say nothing."""
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(model, batch), textbook(model, batch), rtol=1e-4, atol=1e-2)


def machine() -> dict[str, object]:
    sgemm, best = peaks()
    return {
        "cpu": cpu_name(),
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "sgemm_gflops": round(sgemm / 1e9, 1),
        "best_gflops": round(best / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--data", type=Path, help="folder with train.L1 and train.L2")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), help="rows to measure")
    parser.add_argument("--vocabularies", nargs="+", type=int, default=list(VOCABULARIES))
    parser.add_argument("--rounds", type=int, default=6, help="turns of both loops, four batches each")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--forcing", type=float, help="what teacher forcing at this ratio costs, instead")
    instead.add_argument("--precision", choices=["bf16"], help="what products in this number format gain, instead")
    arguments = parser.parse_args()
    ways = None
    if arguments.forcing is not None:
        ways = forced(1.0), forced(arguments.forcing)
    elif arguments.precision is not None:
        ways = in_precision("fp32"), in_precision(arguments.precision)
    tune_process()
    torch.set_num_threads(1)
    rows = []
    for vocabulary in arguments.vocabularies:
        dataset = corpus_pairs(arguments.data, vocabulary) if arguments.data else random_pairs(vocabulary)
        for name in arguments.only:
            if ways is not None:
                print(in_turns(name, vocabulary, dataset, arguments.rounds, ways), flush=True)
                continue
            if name == "recipe" and vocabulary != min(arguments.vocabularies):
                continue  # it has one size, the smallest
            rows.append(measure(name, vocabulary, dataset, arguments.rounds))
            print(line_of(rows[-1]), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json and rows:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}))


def line_of(row: Row) -> str:
    return (
        f"{row.name:<14} V {row.vocabulary:>6,}  {row.flops_per_token / 1e6:6.1f} MFLOP/token  "
        f"{row.tokens_per_second:7,.0f} tokens/s  textbook {row.textbook_tokens_per_second:6,.0f}  "
        f"ratio {row.ratio:.2f}  of sgemm {row.peak_share:.2f}  of best {row.best_share:.2f}  "
        f"memory {row.peak_memory_mb:6,.0f} MB  loader {row.loader_share:.1%}"
    )


if __name__ == "__main__":
    main()
