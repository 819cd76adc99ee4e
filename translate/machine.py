"""Facts about the processor, and settings of the process; nothing here needs torch."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from itertools import takewhile

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt(3)
_LARGEST_BLOCK = 32 << 20  # more is not accepted


@cache
def _cpu_facts() -> dict[str, str]:
    """Linux's facts about the first processor; empty on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            facts = (line.partition(":") for line in takewhile(str.strip, lines))
            return {name.strip(): value.strip() for name, _, value in facts}
    except OSError:
        return {}


def cpu_name() -> str:
    """The processor's own name; empty if it is unknown."""
    return _cpu_facts().get("model name", "") if _cpu_facts() else platform.processor()


def cpu_family() -> int:
    """The vendor's number of the processor family: 25 is AMD's Zen 3 and Zen 4, 26 is Zen 5; 0 if it is unknown."""
    family = _cpu_facts().get("cpu family", "")
    return int(family) if family.isdecimal() else 0


KERNELS_VARIABLE = "TRANSLATE_KERNELS"


def kernels_setting() -> str:
    """The kernels that the environment selects: "" for the fast ones, "reference" for the plain PyTorch code."""
    return os.environ.get(KERNELS_VARIABLE, "")


def tune_process() -> None:
    """Let threads sleep at barriers, and let the allocator keep large blocks. Called once, before torch is loaded."""
    # How long a thread spins at a barrier before it sleeps. With OpenMP's default one other busy process on the machine
    # made a training update 10 times slower; read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # Huge pages for blocks of 2 MB and more, where the system lets programs choose; read at torch's first allocation.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if sys.platform == "linux":
        # glibc gives a large block back at once, and every 4 KiB of the next one costs a page fault: a tenth of an
        # update. Other libcs have no mallopt.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
            mallopt(_TRIM_THRESHOLD, 2**31 - 1)
