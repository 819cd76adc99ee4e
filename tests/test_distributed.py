"""Several processes are one run: the same losses, one writer, and a restart that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from translate.data.batches import collate, collate_shard
from translate.data.dataset import PairDataset
from translate.run.directory import Run

NO_DROPOUT = [f"model.{part}.dropout=0" for part in ("embedding", "encoder", "decoder")]
SETTINGS = [*NO_DROPOUT, "train.batch_tokens=300", "train.valid_every=25", "logging.every=1"]


def some_pairs(count: int) -> PairDataset:
    generator = np.random.default_rng(count)
    lengths = generator.integers(1, 9, (count, 2))
    return PairDataset.from_pairs([([4] * int(src), [5] * int(tgt)) for src, tgt in lengths])


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shards_are_the_batch_dealt_out(count: int, size: int) -> None:
    dataset, rows = some_pairs(count + 10), np.random.default_rng(1).permutation(count + 10)[:count]
    whole = collate(dataset, rows)
    shards = [collate_shard(dataset, rows, rank, size) for rank in range(size)]
    counting = [shard for shard in shards if shard.tgt_valid.any()]
    assert sorted(row for shard in counting for row in shard.rows) == sorted(rows)
    assert {shard.num_tokens for shard in shards} == {whole.num_tokens}
    assert sum(int(shard.tgt_valid.sum()) for shard in shards) == whole.num_tokens
    tokens = [int(shard.tgt_valid.sum()) for shard in shards]
    assert max(tokens) - min(tokens) <= int(dataset.tgt_lengths.max())


def torchrun(config: Path, run: Path, environment: dict[str, str], *options: str, restarts: int = 0) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    # `--` keeps torchrun from reading our --run as its own --run-path.
    ours = ["-m", "--", "translate", "train", str(config), *SETTINGS, *options, "--run", str(run), "--no-test"]
    return [sys.executable, *launcher, *ours]


def losses(run: Path) -> dict[tuple[str, int], float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().split("\n")[:-1])
    return {(record["kind"], record["step"]): record["loss"] for record in records}


def train_alone(config: Path, run: Path, environment: dict[str, str], *options: str) -> None:
    command = [sys.executable, "-m", "translate", "train", str(config), *SETTINGS, *options, "--run", str(run)]
    subprocess.run([*command, "--no-test"], env=environment, check=True, capture_output=True, timeout=300)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(project: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    options = ["train.steps=50", "train.accumulate=2"]
    train_alone(project, tmp_path / "one", environment, *options)
    command = torchrun(project, tmp_path / "two", environment, *options)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("update 50:") == 1  # one of them speaks
    alone, together = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert alone.keys() == together.keys()
    assert len(alone) == 52
    assert max(abs(alone[key] - together[key]) for key in alone) < 1e-5


@pytest.mark.slow
def test_a_killed_process_is_restarted_and_training_goes_on(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The result is that of an undisturbed run: shards, seeds and checkpoints know nothing of the accident."""
    options = ["train.steps=60", "train.valid_every=10"]
    undisturbed = subprocess.run(
        torchrun(project, tmp_path / "calm", environment, *options), env=environment, capture_output=True, timeout=300
    )
    assert undisturbed.returncode == 0
    run = Run(tmp_path / "hit")
    command = torchrun(project, run.path, environment, *options, restarts=1)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (run.path / "last").is_file())
    victim = next(pid for pid, rank in ranks_below(process.pid) if rank == "1")
    os.kill(victim, signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "Going on from" in said
    # Without --resume a run that is there already stays as it is, however often torchrun tries.
    before = (run.path / "config.toml").read_bytes()
    command = torchrun(project, run.path, environment, "train.steps=80", restarts=1)
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert refused.returncode != 0
    assert "holds a run already" in refused.stderr
    assert (run.path / "config.toml").read_bytes() == before
    calm, hit = Run.open(tmp_path / "calm").latest(), run.latest()
    assert calm is not None
    assert hit is not None
    assert (calm.path / "model.safetensors").read_bytes() == (hit.path / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_signal_to_all_saves_once(project: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    run = Run(tmp_path / "run")
    command = torchrun(project, run.path, environment, "train.steps=100000", "train.valid_every=20")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (run.path / "last").is_file())
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert said.count("the checkpoint is saved") == 1
    latest = run.latest()
    assert latest is not None
    assert f"Stopped after update {latest.step};" in said


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def ranks_below(parent: int) -> list[tuple[int, str]]:
    """The processes that torchrun has started, each with its RANK."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = []
    for child in map(int, children):
        variables = Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
        found += [(child, entry.removeprefix("RANK=")) for entry in variables if entry.startswith("RANK=")]
    return found
