"""Masks of dropout: the share that is dropped, the mean that stays, and one bit for one entry."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.kernel_inputs import sample
from translate.kernels import dropout_mask


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_the_share_is_dropped_and_the_rest_scaled(share: float) -> None:
    torch.manual_seed(1)
    mask = dropout_mask(torch.empty(401, 503), share)
    assert abs(float((mask == 0).double().mean()) - share) < 0.005
    assert torch.equal(mask[mask != 0], torch.full_like(mask[mask != 0], 1.0 / (1 - share)))


def test_entries_are_dropped_independently_of_their_neighbours() -> None:
    """Four entries share a draw of 64 bits: each bit may count once only."""
    torch.manual_seed(2)
    kept = (dropout_mask(torch.ones(100_000, 4), 0.5) != 0).double()  # neighbours in rows
    together = (kept.t() @ kept) / len(kept)
    expected = torch.full((4, 4), 0.25, dtype=torch.float64).fill_diagonal_(0.5)
    torch.testing.assert_close(together, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4), (0, 3)])
def test_a_mask_is_like_its_values_and_the_same_from_the_same_seed(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.ones(shape, dtype=dtype)
    masks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        masks.append(dropout_mask(values, 0.4))
    assert all(mask.shape == values.shape and mask.dtype == dtype for mask in masks)
    assert torch.equal(masks[0], masks[1])
    assert values.numel() < 20 or not torch.equal(masks[0], masks[2])


def test_a_mask_knows_nothing_of_the_values() -> None:
    """Not even a NaN or how they lie in memory."""
    values = sample(7, 5, seed=1)
    masks = []
    for given in (values, values * float("nan"), values.t().contiguous().t()):
        torch.manual_seed(5)
        masks.append(dropout_mask(given, 0.5))
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])
