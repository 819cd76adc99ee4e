"""Dropout as models use it: a draw of its own for each call, and nothing in evaluation."""

from __future__ import annotations

import pytest
import torch

from translate.models.layers import Dropout, dropout


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4), (0, 3)])
def test_the_gradient_is_dropped_where_the_value_is(shape: tuple[int, ...]) -> None:
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
