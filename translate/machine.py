"""What machine this is and how the process uses it; nothing here needs torch."""

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
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            facts = (line.partition(":") for line in takewhile(str.strip, lines))
            return {name.strip(): value.strip() for name, _, value in facts}
    except OSError:
        return {}


def cpu_name() -> str:
    """What the processor calls itself; empty where that cannot be known."""
    return _cpu_facts().get("model name", "") if _cpu_facts() else platform.processor()


def cpu_family() -> int:
    """Its maker's number for its generation: 25 is AMD's Zen 3 and Zen 4, 26 is Zen 5; 0 where that is not known."""
    family = _cpu_facts().get("cpu family", "")
    return int(family) if family.isdecimal() else 0


KERNELS_VARIABLE = "TRANSLATE_KERNELS"


def kernels_setting() -> str:
    """Which kernels the environment asks for: "" for the fast ones, "reference" for their plain twins."""
    return os.environ.get(KERNELS_VARIABLE, "")


def tune_process() -> None:
    """Let threads sleep at barriers, and let the allocator keep large blocks. Called once, before torch is loaded."""
    # How long a thread spins at a barrier before it sleeps. With OpenMP's default one other busy process on the machine
    # made a training update 10 times slower; read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # Blocks of 2 MB and more in huge pages, where the system leaves that to its programs; read at torch's first block.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if sys.platform == "linux":
        # glibc gives a large block back at once, and every 4 KiB of the next one costs a page fault: a tenth of an
        # update. A libc that has no mallopt keeps its own ways.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
            mallopt(_TRIM_THRESHOLD, 2**31 - 1)
