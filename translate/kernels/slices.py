"""Slices of large tables that fit into the processor's cache."""

from __future__ import annotations

import torch

_CACHED_ELEMENTS = 1 << 18  # fit into a core's own cache


def cached_slices(rows: int, width: int, device: torch.device) -> list[slice]:
    """Slices of rows that are still in the cache when a second pass begins; on a GPU, one slice."""
    most = max(1, _CACHED_ELEMENTS // max(1, width)) if device.type == "cpu" else max(1, rows)
    return [slice(begin, min(begin + most, rows)) for begin in range(0, rows, most)]
