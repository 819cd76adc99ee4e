"""Slices of tables for the cache."""

from __future__ import annotations

import pytest
import torch

from translate.kernels.slices import cached_slices


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
@pytest.mark.parametrize("width", [0, 1, 70_000, 1 << 20])
def test_slices_are_all_rows_in_order_and_stay_in_the_cache(rows: int, width: int) -> None:
    slices = cached_slices(rows, width, torch.device("cpu"))
    assert [row for some in slices for row in range(some.start, some.stop)] == list(range(rows))
    assert all((some.stop - some.start) * width <= 1 << 18 or some.stop - some.start == 1 for some in slices)
    assert len(cached_slices(rows, width, torch.device("meta"))) == min(rows, 1)
