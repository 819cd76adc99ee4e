"""How fast search is: ours against textbook beams and against the matrix products alone, in alternation.

    python scripts/bench_decode.py [--json] [--data FOLDER | --run RUN] [--vocabulary N] [--sentences N] [--rounds N]
                                   [--int8]

The model is the 512-wide one of scripts/bench_train.py with random weights, whose translations are made as long as
their sources and two pieces. Sources are random pieces of about the lengths of Multi30k; with --data, the sentences of
FOLDER's test.L1 (else train.L1) cut by a tokenizer that learns from its train.L1 and train.L2; with --run, a trained
run's own test set and search settings, and its own lengths.

The textbook beam runs one hypothesis at a time (matrix × vector), the per-sentence beam all hypotheses of one sentence
at once. Both find what ours finds, with the model as it was trained; their speed with our layout of its weights is told
too. The products alone are those that our search asks for, in the same order and shapes.
With --int8 the same searches are also timed with products in 8 bits (search.int8).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_train import learn_pieces
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from translate.config import SearchConfig, check_config
from translate.data.batches import collate_source
from translate.decoding.beam import beam_search
from translate.decoding.constraints import Constraints
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import Hypothesis, normalise
from translate.decoding.packing import int8_for_search, packed_for_search
from translate.decoding.translator import Translator, batch_rows
from translate.kernels.matmul import PackedWeight
from translate.machine import cpu_name, tune_process
from translate.models.seq2seq import Seq2Seq
from translate.models.state import EncodedSource, RecurrentState
from translate.run.directory import Run
from translate.text.corpus import read_lines
from translate.text.tokenizer import BOS, EOS

WIDTHS = {"embedding": 256, "encoder": 512, "attention": 512, "decoder": 512}
BATCHES: tuple[int | None, ...] = (1, 64, None)  # sentences; None is the token budget
NUM_PLAIN = 6  # sentences for the textbook beams, which are slow
Sentences = list[list[int]]
Shape = tuple[str, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """One way of searching at one batch size."""

    name: str
    batch: int | str
    sentences_per_second: float
    steps_per_sentence: float
    products_per_second: float  # sentences per second, if there were nothing but matrix products
    share: float  # of it
    peak_memory_mb: float
    int8_sentences_per_second: float | None = None


@dataclass(frozen=True)
class Ratios:
    """Beam 5 at its best batch against the textbook."""

    beam_sentences_per_second: float
    textbook_sentences_per_second: float
    textbook_ratio: float
    per_sentence_sentences_per_second: float
    per_sentence_ratio: float
    packed_textbook_ratio: float  # both with weights laid out as ours are
    packed_per_sentence_ratio: float


def random_model(vocabulary: int, packed: bool = True) -> Seq2Seq:
    tree: dict[str, Any] = {
        "data": {"folder": "-", "source_lang": "a", "target_lang": "b"},
        "train": {"steps": 1},
        "model": {part: {"width": width} for part, width in WIDTHS.items()},
    }
    torch.manual_seed(1)
    model = Seq2Seq(check_config(tree, origin="bench_decode").model, vocabulary, vocabulary, 128).eval()
    with torch.no_grad():
        model.decoder.output.vocabulary.weight.mul_(4.0)  # peaky, as trained models are
        model.decoder.output.vocabulary.bias[EOS] = -30.0  # the length is set by the limits
    return packed_for_search(model) if packed else model


def random_sources(vocabulary: int, count: int) -> Sentences:
    """Random pieces; lengths as in Multi30k, 13 pieces on average."""
    generator = np.random.default_rng(1)
    lengths = np.clip(generator.gamma(9.0, 13 / 9.0, count).round(), 3, 50).astype(int)
    return [generator.integers(4, vocabulary, n).tolist() for n in lengths]


def corpus_sources(folder: Path, vocabulary: int, count: int) -> tuple[Sentences, int]:
    """The pieces of a folder's test sentences, and the size of the vocabulary."""
    files, sides, tokenizer = learn_pieces(folder, vocabulary)
    test = folder / f"test{files[0].suffix}"
    lines = list(read_lines(test)) if test.is_file() else sides[0]
    return [sentence for sentence in tokenizer.encode_all(lines[:count]) if sentence], tokenizer.size


def encode(model: Seq2Seq, sentences: Sentences) -> EncodedSource:
    return model.encode(*collate_source(sentences))


@torch.inference_mode()
def ours(model: Seq2Seq, sentences: Sentences, search: SearchConfig, batch: int | None) -> list[Hypothesis]:
    """All sentences sorted by length, in batches of `batch` sentences or, if it is None, of a token budget."""
    found: dict[int, Hypothesis] = {}
    vocabulary = model.decoder.output.vocabulary.out_features
    for rows in batch_rows(sentences, search, search.beam * vocabulary):
        size = batch or len(rows)
        for begin in range(0, len(rows), size):
            some = rows[begin : begin + size]
            source = encode(model, [sentences[row] for row in some])
            if search.beam == 1:
                best = greedy(model, source, search)
            else:
                best = [several[0] for several in beam_search(model, source, search)]
            found |= dict(zip(some.tolist(), best, strict=True))
    return [found[row] for row in range(len(sentences))]


@torch.inference_mode()
def textbook(
    model: Seq2Seq, sentences: Sentences, search: SearchConfig, together: bool
) -> list[tuple[float, tuple[int, ...]]]:
    """Scores and tokens by a beam over lists; `together` takes all hypotheses of a sentence through one step."""
    found = []
    for sentence in sentences:
        source = encode(model, [sentence])
        rules = Constraints(source, search)
        longest = int(rules.longest[0])
        live: list[tuple[float, tuple[int, ...], RecurrentState]] = [(0.0, (), model.decoder.start(source))]
        ended: list[tuple[float, tuple[int, ...]]] = []
        length = 0
        while live:
            length += 1
            candidates: list[tuple[float, tuple[int, ...], RecurrentState, int]] = []
            for log_probs, state, members in _steps(model, source, rules, live, length, together):
                gained, tokens = log_probs.topk(search.beam, dim=1)
                for row, (total, before, _) in enumerate(members):
                    for value, token in zip(gained[row].tolist(), tokens[row].tolist(), strict=True):
                        candidates.append((total + value, (*before, token), state, row))
            candidates = [one for one in candidates if one[0] > -np.inf]
            chosen = sorted(candidates, key=lambda one: -one[0])[: search.beam - len(ended)]
            live = []
            for total, tokens_so_far, state, row in chosen:
                if tokens_so_far[-1] == EOS:
                    score = float(normalise(torch.tensor(total), length, search))
                    ended.append((score, tokens_so_far[:-1]))
                else:
                    live.append((total, tokens_so_far, state.select(torch.tensor([row]))))
            if ended and live:
                reach = float(normalise(torch.tensor(live[0][0]), longest, search))
                done = search.stop == "first" or (search.stop == "exact" and max(ended)[0] >= reach)
                live = [] if done else live
        found.append(max(ended))
    return found


def _steps(
    model: Seq2Seq,
    source: EncodedSource,
    rules: Constraints,
    live: list[tuple[float, tuple[int, ...], RecurrentState]],
    length: int,
    together: bool,
) -> list[tuple[Tensor, RecurrentState, list[tuple[float, tuple[int, ...], RecurrentState]]]]:
    """Log probabilities and states after one step of the live hypotheses, in one part or one by one."""
    results = []
    for members in [live] if together else [[one] for one in live]:
        rows = torch.zeros(len(members), dtype=torch.long)
        state = members[0][2]
        if len(members) > 1:
            state = _joined([one[2] for one in members])
        tokens = torch.tensor([one[1][-1] if one[1] else BOS for one in members])
        seen = source.select(rows) if len(members) > 1 else source
        features, state, weights = model.decoder.step(tokens, state, seen)
        log_probs = model.decoder.output.log_probs(features, weights, seen)
        rules.apply(log_probs, rows, length, None)
        results.append((log_probs, state, members))
    return results


def _joined(states: list[RecurrentState]) -> RecurrentState:
    """Rows of several states as one."""
    layers = zip(*(state.hidden for state in states), strict=True)
    hidden = tuple(tuple(torch.cat(column) for column in zip(*layer, strict=True)) for layer in layers)
    return RecurrentState(hidden=hidden, position=torch.cat([state.position for state in states]))


PACKED = "_linear_pointwise"  # the operator behind `PackedWeight`


class Products(TorchDispatchMode):
    """Notes every matrix product that is asked for."""

    NAMES = ("mm", "addmm", "bmm", "baddbmm", PACKED)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[Shape] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.NAMES:
            if name == PACKED:
                left, right = args[0].shape, args[1].shape[::-1]
            else:
                left, right = [arg.shape for arg in args if isinstance(arg, Tensor)][-2:]
            self.shapes.append((name, tuple(left), tuple(right)))
            return func(*args, **(kwargs or {}))
        with self:  # inference mode hands composite operations over whole
            result = func.decompose(*args, **(kwargs or {}))
        return result if result is not NotImplemented else func(*args, **(kwargs or {}))


def replay(shapes: Sequence[Shape]) -> Callable[[], None]:
    """A function that forms the same products and nothing else.

    Each weight matrix is a tensor of its own, as in the model; all else shares its memory, which may well be in cache.
    """
    weights = {shape[2]: torch.randn(shape[2]) for shape in shapes if len(shape[2]) < 3}
    packed = {shape[2]: PackedWeight(weights[shape[2]].t().contiguous()) for shape in shapes if shape[0] == PACKED}
    left = torch.randn(max(int(np.prod(first)) for _, first, _ in shapes))
    right = torch.randn(max(int(np.prod(second)) for _, _, second in shapes))
    results = torch.empty(max(int(np.prod(a[:-1])) * b[-1] for _, a, b in shapes))
    calls = []
    for name, first, second in shapes:
        one = left[: int(np.prod(first))].view(first)
        other = weights[second] if second in weights else right[: int(np.prod(second))].view(second)
        shape = (*first[:-1], second[-1])
        out = results[: int(np.prod(shape))].view(shape)
        calls.append(partial(packed[second], one) if name == PACKED else partial(torch.matmul, one, other, out=out))

    @torch.inference_mode()
    def run() -> None:
        for call in calls:
            call()

    return run


def timed(action: Callable[[], object]) -> float:
    """By the processor's clock: there is one thread, and a busy machine is not the program's fault."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def count_steps(model: Seq2Seq, action: Callable[[], object]) -> int:
    """Steps of the decoder, each of them for all rows."""
    step, count = model.decoder.step, 0

    def counting(*args: Any) -> Any:
        nonlocal count
        count += 1
        return step(*args)

    model.decoder.step = counting  # type: ignore[method-assign,assignment]
    try:
        action()
    finally:
        del model.decoder.step
    return count


def measure(
    model: Seq2Seq,
    bare: Seq2Seq,
    sentences: Sentences,
    searches: dict[str, SearchConfig],
    rounds: int,
    say: Callable[[str], None],
    small: Seq2Seq | None = None,
) -> tuple[list[Row], Ratios]:
    """All ways in alternation, `bare` for the textbook's; the median of the rounds."""
    actions: dict[tuple[str, int | None], Callable[[], object]] = {}
    small_actions: dict[tuple[str, int | None], Callable[[], object]] = {}
    products: dict[tuple[str, int | None], Callable[[], None]] = {}
    counts, steps, peaks = {}, {}, {}
    for name, search in searches.items():
        for batch in BATCHES:
            some = sentences[: max(16, len(sentences) // 8)] if batch == 1 else sentences
            key = (name, batch)
            counts[key] = len(some)
            actions[key] = lambda some=some, search=search, batch=batch: ours(model, some, search, batch)  # type: ignore[misc]
            steps[key] = count_steps(model, actions[key])  # also warms up
            peaks[key] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            with Products() as seen:
                actions[key]()
            products[key] = replay(seen.shapes)
            if small is not None:
                small_actions[key] = lambda some=some, search=search, batch=batch: ours(small, some, search, batch)  # type: ignore[misc]
                small_actions[key]()
    beam = next(search for search in searches.values() if search.beam > 1)
    few = sentences[:NUM_PLAIN]
    plain = {
        "textbook": lambda: textbook(bare, few, beam, together=False),
        "per sentence": lambda: textbook(bare, few, beam, together=True),
        "packed textbook": lambda: textbook(model, few, beam, together=False),
        "packed per sentence": lambda: textbook(model, few, beam, together=True),
    }
    times: dict[Any, list[float]] = {}
    for number in range(rounds):
        for key, action in actions.items():
            times.setdefault(key, []).append(timed(action))
            times.setdefault(("products", key), []).append(timed(products[key]))
            if small is not None:
                times.setdefault(("int8", key), []).append(timed(small_actions[key]))
        for name, action in plain.items():
            times.setdefault(name, []).append(timed(action))
        say(f"round {number + 1} of {rounds}")
    best = {key: statistics.median(values) for key, values in times.items()}
    rows = [
        Row(
            name,
            batch or "tokens",
            counts[name, batch] / best[name, batch],
            steps[name, batch] / counts[name, batch],
            counts[name, batch] / best["products", (name, batch)],
            best["products", (name, batch)] / best[name, batch],
            peaks[name, batch],
            counts[name, batch] / best["int8", (name, batch)] if small is not None else None,
        )
        for name, batch in actions
    ]
    beams = [row.sentences_per_second for row in rows if row.name != "greedy" and row.batch != 1]
    speeds = {name: len(few) / best[name] for name in plain}
    ratios = Ratios(
        max(beams),
        speeds["textbook"],
        max(beams) / speeds["textbook"],
        speeds["per sentence"],
        max(beams) / speeds["per sentence"],
        max(beams) / speeds["packed textbook"],
        max(beams) / speeds["packed per sentence"],
    )
    return rows, ratios


def machine() -> dict[str, object]:
    facts = {
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": str(date.today()),
    }
    try:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        return {**facts, "commit": commit.stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, help="a folder with train.L1, train.L2 and, if there is one, test.L1")
    parser.add_argument("--run", type=Path, help="a trained run: its model, test set and search settings")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--int8", action="store_true", help="also with products in 8 bits")
    arguments = parser.parse_args()
    tune_process()
    torch.set_num_threads(1)
    say = (lambda text: print(text, file=sys.stderr)) if sys.stderr.isatty() else (lambda text: None)
    fixed = SearchConfig(length_ratio=1.0, length_extra=2)
    if arguments.run is not None:
        translator = Translator.load(arguments.run)
        model, bare, fixed = translator.model, Run.open(arguments.run).load_model().eval(), translator.search
        lines = list(read_lines(arguments.run / "data" / "test.source"))[: arguments.sentences]
        sentences = [sentence for sentence in translator.source.encode_all(lines) if sentence]
    elif arguments.data is not None:
        sentences, vocabulary = corpus_sources(arguments.data, arguments.vocabulary, arguments.sentences)
        model, bare = random_model(vocabulary), random_model(vocabulary, packed=False)
    else:
        sentences, model = random_sources(arguments.vocabulary, arguments.sentences), random_model(arguments.vocabulary)
        bare = random_model(arguments.vocabulary, packed=False)
    searches = {
        "greedy": fixed.model_copy(update={"beam": 1, "groups": 1}),
        f"beam {arguments.beam}": fixed.model_copy(update={"beam": arguments.beam, "groups": 1}),
    }
    small = int8_for_search(model) if arguments.int8 else None
    rows, ratios = measure(model, bare, sentences, searches, arguments.rounds, say, small)
    if arguments.json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows], "ratios": asdict(ratios)}))
        return
    print("  ".join(f"{key} {value}" for key, value in machine().items()))
    widths = {"sent./s": 10, "products": 10, "share": 8, "steps/sent.": 13, "peak MB": 9, "int8/s": 9}
    print(f"{'search':<8}{'batch':>8}" + "".join(f"{name:>{width}}" for name, width in widths.items()))
    for row in rows:
        print(
            f"{row.name:<8}{row.batch:>8}{row.sentences_per_second:>10.1f}{row.products_per_second:>10.1f}"
            f"{row.share:>8.2f}{row.steps_per_sentence:>13.2f}{row.peak_memory_mb:>9.0f}"
            + ("" if row.int8_sentences_per_second is None else f"{row.int8_sentences_per_second:>9.1f}")
        )
    print(
        f"beam {arguments.beam} is {ratios.textbook_ratio:.1f} × a beam of one hypothesis at a time "
        f"({ratios.textbook_sentences_per_second:.2f}/s) and {ratios.per_sentence_ratio:.1f} × one sentence at a time "
        f"({ratios.per_sentence_sentences_per_second:.2f}/s); with weights laid out as ours, "
        f"{ratios.packed_textbook_ratio:.1f} × and {ratios.packed_per_sentence_ratio:.1f} ×"
    )


if __name__ == "__main__":
    main()
