"""The additive score in slices: by queries, so that memory stays within bounds, and by sentences, for the cache."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.kernel_inputs import check_all_close, check_close, gradients, in_float32, sample
from translate.kernels import additive, additive_score, in_slices, plain, reference, slices

BATCH, QUERIES, POSITIONS, WIDTH = 2, 3, 5, 4


def leaves(groups: int = 1) -> list[Tensor]:
    return [
        sample(BATCH, groups, QUERIES, WIDTH, seed=1).requires_grad_(),
        sample(BATCH, groups, POSITIONS, WIDTH, seed=2).requires_grad_(),
        sample(groups, WIDTH, seed=3).requires_grad_(),
    ]


def results(groups: int) -> list[Tensor]:
    given = leaves(groups)
    found = additive_score(*given)
    with torch.no_grad():
        check_close(additive_score(*given), found, 1e-12)
    return [found, *gradients([found], given)]


@pytest.mark.parametrize("some", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_some_queries_at_a_time_are_all_at_once(groups: int, some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    per_query = BATCH * groups * POSITIONS * WIDTH
    seen: list[int] = []
    owner, name = (additive, "_one_group") if groups == 1 else (reference, "additive_score")
    compute = getattr(owner, name)

    def spy(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        seen.append(queries.size(2) * per_query)
        return compute(queries, keys, v)

    given = leaves(groups)
    monkeypatch.setattr(owner, name, spy)
    whole = additive_score(*given)
    wanted = [whole, *gradients([whole], given)]
    assert seen == [QUERIES * per_query]
    seen.clear()
    monkeypatch.setattr(additive, "MAX_UNITS", (some + 1) * per_query - 1)
    parts = additive_score(*given)
    check_all_close([parts, *gradients([parts], given)], wanted, 1e-12)
    assert max(seen) == some * per_query
    assert len(seen) == 2 * -(-QUERIES // some), "each slice is computed once, and once more in the backward pass"


@pytest.mark.parametrize("sentences", [1, 2])
def test_some_sentences_at_a_time_are_all_at_once(sentences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results(groups=1)
    monkeypatch.setattr(slices, "_CACHED_ELEMENTS", sentences * QUERIES * POSITIONS * WIDTH)
    check_all_close(results(groups=1), whole, 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_single(dtype: torch.dtype) -> None:
    given = [one.detach().to(dtype).requires_grad_() for one in leaves()]
    exact = [one.detach().float().requires_grad_() for one in given]
    found, expected = additive_score(*given), additive_score(*exact)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.05)
    for one, other in zip(gradients([found], given), gradients([expected], exact), strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.1)


def test_keys_of_more_precision_than_queries_give_their_precision() -> None:
    """As coverage makes them under autocast, in the kernel and in its twin."""
    queries, keys = in_float32(BATCH, 1, QUERIES, WIDTH, seed=1).bfloat16(), in_float32(BATCH, 1, 5, WIDTH, seed=2)
    v = in_float32(1, WIDTH, seed=3)
    found = additive_score(queries, keys, v)
    with plain():
        expected = additive_score(queries, keys, v)
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_query_alone_may_be_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "MAX_UNITS", 1)
    queries, keys, v = leaves()
    with plain():
        expected = additive_score(queries, keys, v)
    check_close(additive_score(queries, keys, v), expected)
    assert in_slices(lambda some, _: some, queries, keys).equal(queries)
