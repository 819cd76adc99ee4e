"""What each kernel gains: training and search with its plain twin in its place, in alternation with all kernels.

    python scripts/bench_kernels.py [--json] [--data FOLDER] [--only ROW ...] [--without NAME ...] [--rounds N]

Rows are those of bench_train.py and the searches of bench_decode.py, at a vocabulary of 8,000; each number tells by how
many per cent the row takes longer without the kernel. Without --data sentences are random pieces.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import bench_decode
import bench_train
import torch

from translate import kernels
from translate.config import SearchConfig
from translate.decoding.packing import packed_for_search
from translate.machine import cpu_name, tune_process
from translate.models.decoders import RecurrentDecoder
from translate.models.seq2seq import Seq2Seq
from translate.models.source_views import PlainView, SourceView
from translate.models.state import EncodedSource
from translate.training.optim import build_optimizer

Context = Callable[[], AbstractContextManager[object]]


class Without(NamedTuple):
    """One thing left out."""

    name: str
    context: Context
    in_training: bool
    in_search: bool


def _plain_view(self: RecurrentDecoder, source: EncodedSource) -> SourceView:
    return PlainView(self.attention, self.context_matrices(), source)


def _no_preparation(self: RecurrentDecoder, source: EncodedSource, hypotheses: int) -> EncodedSource:
    return source


WITHOUT = [
    *(Without(name, partial(kernels.plain, name), True, name not in ("vocabulary_loss", "dropout_mask"))
      for name in kernels.KERNELS),
    Without("TrainingView", partial(mock.patch.object, RecurrentDecoder, "_training_view", _plain_view), True, False),
    Without("packed", partial(mock.patch.object, sys.modules[__name__], "packed_for_search", lambda model: model),
            False, True),
    Without("SearchView", partial(mock.patch.object, RecurrentDecoder, "for_search", _no_preparation), False, True),
    Without("all", partial(kernels.plain), True, True),
]  # fmt: skip


def gain(action: Callable[[], float], context: Context, rounds: int) -> float:
    """By how much longer it takes without, as a share: the median of rounds, each fast, without, without, fast."""
    shares = []
    with context():
        action()
    action()
    for _ in range(rounds):
        fast = action()
        with context():
            plain = action() + action()
        shares.append(plain / (fast + action()) - 1)
    return statistics.median(shares)


def training(name: str, vocabulary: int, data: Path | None) -> Callable[[], float]:
    """Seconds of four updates, one from each quarter of the lengths."""
    dataset = bench_train.corpus_pairs(data, vocabulary) if data else bench_train.random_pairs(vocabulary)
    torch.manual_seed(1)
    config = bench_train.settings(MODELS[name])
    model = Seq2Seq(config.model, vocabulary, vocabulary, config.data.max_length).train()
    optimizer = build_optimizer(model, config.train)
    (batches,) = bench_train.spread_batches(config, dataset, rounds=1)
    bench_train.timed(model, optimizer, batches, bench_train.ours)
    return lambda: bench_train.timed(model, optimizer, batches, bench_train.ours)


def searching(beam: int, sentences: int, vocabulary: int) -> Callable[[], float]:
    """Seconds of a search; the model is packed anew, because without `linear` it is not packed at all."""
    sources = bench_decode.random_sources(vocabulary, sentences)
    search = SearchConfig(length_ratio=1.0, length_extra=2, beam=beam)
    bare = bench_decode.random_model(vocabulary, packed=False)

    def action() -> float:
        model = packed_for_search(bare)
        began = time.perf_counter()
        bench_decode.ours(model, sources, search, batch=None)
        return time.perf_counter() - began

    return action


# The models of bench_train.py, and one with LSTMs.
MODELS = {
    **bench_train.ROWS,
    "lstm": {**bench_train.WIDE, "model.encoder.kind": "bilstm", "model.decoder.cell": "lstm"},
}
SEARCHES = {"greedy": (1, 128), "beam 5": (5, 64), "greedy, one sentence": (1, 1), "beam 5, one sentence": (5, 1)}
ROWS = [*MODELS, *SEARCHES]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--data", type=Path, help="folder with train.L1 and train.L2")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, help="rows to measure")
    parser.add_argument("--without", nargs="+", choices=[one.name for one in WITHOUT], help="what is left out in turn")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    tune_process()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, float]] = {}
    for name in arguments.only:
        if name in SEARCHES:
            action = searching(*SEARCHES[name], arguments.vocabulary)
        else:
            action = training(name, arguments.vocabulary, arguments.data)
        rows[name] = {}
        for one in WITHOUT:
            applies = one.in_search if name in SEARCHES else one.in_training
            if applies and (arguments.without is None or one.name in arguments.without):
                rows[name][one.name] = round(gain(action, one.context, arguments.rounds), 4)
                print(f"{name:<22}{one.name:<24}{rows[name][one.name]:+8.1%}", file=sys.stderr, flush=True)
    if arguments.json:
        facts = {"cpu": cpu_name(), "torch": torch.__version__, "rounds": arguments.rounds}
        print(json.dumps({"machine": facts, "rows": rows}))
        return
    print(table(rows))


def table(rows: dict[str, dict[str, float]]) -> str:
    """A Markdown table, a line for each thing left out."""
    names: Sequence[str] = [one.name for one in WITHOUT if any(one.name in found for found in rows.values())]
    lines = [f"| without | {' | '.join(rows)} |", f"|---|{'---|' * len(rows)}"]
    for name in names:
        cells = [f"{found[name]:+.1%}" if name in found else "" for found in rows.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
