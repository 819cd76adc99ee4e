"""Does `translate text` stay small? A million lines through a tiny model, and its memory on the way.

    python scripts/soak_text.py [--lines N] [--early N] [--run RUN] [--json]

The memory after all lines may be at most 1.1 times that after the first 10,000, or the script exits with 1. Without
--run a tiny model with random weights is made for the purpose, whose translations have a few words.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import torch

from translate.config import TokenizerConfig, check_config
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.text.tokenizer import Tokenizer, train_tokenizer

MOST_GROWTH = 1.1
SUBJECTS = ("the dog", "a cat", "my sister", "the old man", "nobody", "the red car", "every child")
VERBS = ("sleeps", "sees the house", "does not sing", "will come tomorrow", "has gone")


def line(number: int) -> str:
    """Lines of many lengths, among them empty ones."""
    if number % 97 == 0:
        return ""
    words = f"{SUBJECTS[number % 7]} {VERBS[number // 7 % 5]}"
    return " and ".join([words] * (1 + number % 3)) + f" {number % 1000}"


def make_run(folder: Path) -> Path:
    """A run with random weights that ends its sentences soon."""
    tree = {
        "data": {"folder": str(folder), "source_lang": "a", "target_lang": "b"},
        "tokenizer": {"vocabulary": 320},
        "model": {part: {"width": 16} for part in ("embedding", "encoder", "attention", "decoder")},
        "train": {"steps": 1},
        "search": {"length_ratio": 0.5, "length_extra": 2},
    }
    config = check_config(tree, origin="soak_text")
    lines = [line(number) for number in range(300)]
    tokenizer = Tokenizer(train_tokenizer(lines, TokenizerConfig(vocabulary=320), 1, lambda text: None))
    torch.manual_seed(1)
    model = Seq2Seq(config.model, tokenizer.size, tokenizer.size, config.data.max_length)
    run = Run(folder)
    run.create(config, tokenizer, tokenizer)
    state = {"step": 1, "seconds": 0.0, "last_validated": 1}
    run.point("best", run.save("step-00000001", dict(model.named_parameters()), {}, state))
    return folder


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    """What the process holds now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (resident,) = (row.split()[1] for row in status.splitlines() if row.startswith("VmRSS"))
    return int(resident) / 1024


def feed(stdin: IO[bytes], count: int) -> None:
    with stdin:
        for number in range(count):
            stdin.write(line(number).encode() + b"\n")


def soak(run: Path, count: int, early: int) -> dict[str, float]:
    """Pipe the lines through the command; memory after the early ones and near the end, and the speed."""
    command = [sys.executable, "-m", "translate", "text", str(run), "--beam", "1", "--device", "cpu"]
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        threading.Thread(target=feed, args=(process.stdin, count), daemon=True).start()
        first = last = 0.0
        done = 0
        for done, answer in enumerate(process.stdout, start=1):
            assert (answer == b"\n") >= (line(done - 1) == ""), f"line {done} is empty and its answer is not"
            if done == early:
                first = memory_mb(process)
            if done >= count - 5000 and done % 100 == 0 and process.poll() is None:
                last = max(last, memory_mb(process)) if Path(f"/proc/{process.pid}/status").exists() else last
        code = process.wait()
    if code or done != count:
        sys.exit(f"`translate text` gave {done:,} lines for {count:,} and ended with {code}.")
    seconds = time.monotonic() - begin
    return {
        "lines": count,
        "memory_mb_early": first,
        "memory_mb_end": last,
        "growth": last / first,
        "lines_per_second": count / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--early", type=int, default=10_000)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or make_run(Path(folder) / "tiny")
        found = soak(run, arguments.lines, arguments.early)
    if arguments.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['lines']:,} lines at {found['lines_per_second']:,.0f}/s; memory {found['memory_mb_early']:.0f} MB "
            f"after {arguments.early:,} lines, {found['memory_mb_end']:.0f} MB at the end: × {found['growth']:.3f}"
        )
    if found["growth"] > MOST_GROWTH:
        sys.exit(f"The memory grew by more than {MOST_GROWTH}.")


if __name__ == "__main__":
    main()
