"""What each way of stopping costs and finds: BLEU, sentences per second and steps, on a run's own validation data.

    python scripts/compare_stops.py RUN [--beam N ...] [--rounds N] [--sentences N]

The ways take turns, so that a busy machine troubles all of them alike; speeds are the medians, by the processor's clock
on one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from translate.config import SearchConfig, change_search, choices
from translate.decoding.translator import Translator
from translate.evaluation.evaluate import read_pairs, run_split_files
from translate.evaluation.metrics import evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--beam", type=int, nargs="+", default=[5])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    translator = Translator.load(arguments.run)
    sources, references = (side[: arguments.sentences] for side in read_pairs(*run_split_files(arguments.run, "valid")))
    searches = {
        (name, stop, beam): change_search(translator.search, normalization=name, stop=stop, beam=beam)
        for name in choices(SearchConfig, "normalization")
        for stop in choices(SearchConfig, "stop")
        for beam in arguments.beam
    }
    seconds: dict[tuple[str, str, int], list[float]] = {key: [] for key in searches}
    found: dict[tuple[str, str, int], list[str]] = {}
    for _ in range(arguments.rounds):
        for key, search in searches.items():
            begin = time.process_time()
            found[key] = [best[0].text for best in translator.translate(sources, search, attention=False)]
            seconds[key].append(time.process_time() - begin)
    print(f"{'normalization':<15}{'stop':<8}{'beam':>4}{'BLEU':>8}{'sentences/s':>13}")
    for key in searches:
        speed = len(sources) / statistics.median(seconds[key])
        bleu = evaluate(found[key], references, 0.0).bleu.score
        print(f"{key[0]:<15}{key[1]:<8}{key[2]:>4}{bleu:>8.2f}{speed:>13.1f}")


if __name__ == "__main__":
    main()
