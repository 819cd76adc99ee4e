"""Several processes as one, under `torchrun … -m translate train` or `text`; without torchrun there is one.

Every process has the whole model and takes its share of each batch's sentences; the first one alone writes, validates
and decides, and tells the others. So settings mean the same for any number of processes. The numbers are not the same
to the bit: sums are rounded in another order, and each process draws its own dropout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")
_PATIENCE = timedelta(hours=2)  # the others wait while the first validates; a dead process is noticed at once


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    restarted: bool = False  # torchrun started us again after a failure
    job: str = ""  # torchrun's name of the job, the same after a restart

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sums(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)  # on the CPU: the device goes on meanwhile
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def from_leader(self, value: T) -> T:
        """The first process's value, in all processes."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def to_leader(self, value: T) -> list[T] | None:
        """The values of all processes in order, in the first one; None in the others."""
        if self.size == 1:
            return [value]
        values: list[T] | None = [value] * self.size if self.leads else None
        dist.gather_object(value, values, dst=0)
        return values

    def device(self, device: torch.device) -> torch.device:
        """The device of this process, of the given kind."""
        if self.size == 1 or device.type != "cuda":
            return device
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, with gradients that are averaged over all processes."""
        return module if self.size == 1 else DistributedDataParallel(module, gradient_as_bucket_view=True)


ALONE = World()


def _job() -> str:
    """The job's id if it has one (--rdzv-id, --standalone), else the launcher's process id, which restarts share."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return name if name != "none" else f"launcher {os.getppid()}"


@contextmanager
def joined() -> Iterator[World]:
    """Connect to the other processes that torchrun has started, if any."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
    # torchrun keeps its store over restarts, with the addresses of processes that have ended.
    store = dist.PrefixStore(f"attempt-{restarts}", store)  # type: ignore[attr-defined]
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    try:
        yield World(rank, size, int(os.environ.get("LOCAL_RANK", "0")), restarts > 0, _job())
    finally:
        dist.destroy_process_group()
