"""Dropout: the share that is dropped, the mean that stays, and the same draw from the same seed."""

from __future__ import annotations

import pytest
import torch

from translate.models.dropout import Dropout, dropout


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_the_share_is_dropped_and_the_rest_scaled(share: float) -> None:
    torch.manual_seed(1)
    found = dropout(torch.full((401, 503), 2.0), share)
    assert abs(float((found == 0).double().mean()) - share) < 0.005
    assert torch.equal(found[found != 0], torch.full_like(found[found != 0], 2.0 / (1 - share)))


def test_entries_are_dropped_independently_of_their_neighbours() -> None:
    """Four entries share a draw of 64 bits: each bit may count once only."""
    torch.manual_seed(2)
    kept = (dropout(torch.ones(4, 100_000).t().contiguous(), 0.5) != 0).double()  # neighbours in rows
    together = (kept.t() @ kept) / len(kept)
    expected = torch.full((4, 4), 0.25, dtype=torch.float64).fill_diagonal_(0.5)
    torch.testing.assert_close(together, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4), (0, 3)])
def test_any_shape_and_its_gradient(shape: tuple[int, ...]) -> None:
    values = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    found = dropout(values, 0.4)
    (gradient,) = torch.autograd.grad(found.sum(), values)
    assert torch.equal(gradient, found.detach())
    torch.manual_seed(3)
    assert torch.equal(dropout(values, 0.4), found)


def test_nothing_happens_in_evaluation_or_with_no_share() -> None:
    values = torch.randn(3, 4)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0).train()(values) is values
    assert Dropout(0.5).train()(values) is not values
