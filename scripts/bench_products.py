"""How fast products x Wᵀ are by the layout of W, in GFLOP/s: what `translate/kernels/matmul.py` chooses by.

    python scripts/bench_products.py [--rows N ...] [--rounds N]

One thread; medians of rounds in alternation. `plain` is torch's product with W as a layer has it, `columns` with its
transposed copy, `oneDNN` that library's product with W as it is, `packed` with W in its own layout, and `grad` the last
two for g W, whose matrix lies transposed. The last column tells what packing W and its transposed view takes, in
microseconds. The matrices are those of a 512-wide model and of its vocabulary of 8,000.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from translate.machine import cpu_name, tune_process

ROWS = (1, 5, 16, 64, 320, 900)
MATRICES = ((512, 512), (1536, 512), (1536, 1024), (8000, 256))
SECONDS = 0.02  # of one measurement


def ways(weight: Tensor, rows: int) -> dict[str, Callable[[], object]]:
    """All ways to one product, and the packing."""
    inputs, grads = torch.randn(rows, weight.size(1)), torch.randn(rows, len(weight))
    product, pack = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._reorder_linear_weight

    def by_onednn(left: Tensor, matrix: Tensor) -> Callable[[], object]:
        return partial(product, left, matrix, None, "none", [], "")

    return {
        "plain": partial(torch.mm, inputs, weight.t()),
        "columns": partial(torch.mm, inputs, weight.t().contiguous()),
        "oneDNN": by_onednn(inputs, weight),
        "packed": by_onednn(inputs, pack(weight, 64)),
        "plain grad": partial(torch.mm, grads, weight),
        "oneDNN grad": by_onednn(grads, weight.t()),
        "packed grad": by_onednn(grads, pack(weight.t(), 64)),
        "packing": partial(pack, weight, 64),
        "packing transposed": partial(pack, weight.t(), 64),
    }


def seconds(action: Callable[[], object], count: int) -> float:
    begin = time.process_time()
    for _ in range(count):
        action()
    return (time.process_time() - begin) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), help="rows of x (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of all ways (%(default)s)")
    arguments = parser.parse_args()
    tune_process()
    torch.set_num_threads(1)
    print(f"{cpu_name()}, torch {torch.__version__}, one thread")
    for index, (rows, (outputs, width)) in enumerate((rows, matrix) for rows in arguments.rows for matrix in MATRICES):
        actions = ways(torch.randn(outputs, width), rows)
        counts = {name: max(1, round(SECONDS / seconds(action, 3))) for name, action in actions.items()}
        times: dict[str, list[float]] = {name: [] for name in actions}
        for _ in range(arguments.rounds):
            for name, action in actions.items():
                times[name].append(seconds(action, counts[name]))
        medians = {name: statistics.median(some) for name, some in times.items()}
        if not index:
            print(
                f"{'rows':>5} {'matrix':>11} "
                + " ".join(f"{name:>11}" for name in list(actions)[:-2])
                + "  packing, µs"
            )
        speeds = [2 * rows * outputs * width / medians[name] / 1e9 for name in list(actions)[:-2]]
        packing = " and ".join(f"{1e6 * medians[name]:,.0f}" for name in list(actions)[-2:])
        print(f"{rows:>5} {f'{outputs} × {width}':>11} " + " ".join(f"{one:>11.1f}" for one in speeds) + f"  {packing}")


if __name__ == "__main__":
    main()
