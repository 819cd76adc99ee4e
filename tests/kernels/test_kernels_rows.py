"""Which rows take part in a step of a loop, slices for the cache, and tables that are cut and joined."""

from __future__ import annotations

import pytest
import torch
from kernel_inputs import sample

from translate.kernels.rows import RowSchedule, cached_slices, split_rows
from translate.kernels.shared_gradients import GradientBuffer, concatenated


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
@pytest.mark.parametrize("width", [0, 1, 70_000, 1 << 20])
def test_slices_are_all_rows_in_order_and_stay_in_the_cache(rows: int, width: int) -> None:
    slices = cached_slices(rows, width, torch.device("cpu"))
    assert [row for some in slices for row in range(some.start, some.stop)] == list(range(rows))
    assert all((some.stop - some.start) * width <= 1 << 18 or some.stop - some.start == 1 for some in slices)
    assert len(cached_slices(rows, width, torch.device("meta"))) == min(rows, 1)


def schedule(lengths: list[int] | None, rows: int = 21, steps: int = 5) -> RowSchedule:
    tokens = torch.zeros(rows, steps, dtype=torch.long)
    return RowSchedule(tokens, None if lengths is None else torch.tensor(lengths))


LENGTHS = {
    "all stay": None,
    "alike": [5] * 21,
    "some leave": [5, 3, 5, 4, 5] + [4] * 4 + [2] * 8 + [1] * 4,  # the second row ends before the third
    "most leave": [5] + [1] * 20,
    "none stays": [2] * 21,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_a_row_leaves_only_when_it_and_all_after_it_have_ended(lengths: list[int] | None) -> None:
    made = schedule(lengths)
    assert len(made.rows) == 5
    assert made.rows == sorted(made.rows, reverse=True)
    for step, count in enumerate(made.rows):
        needed = 21 if lengths is None else max([row + 1 for row, length in enumerate(lengths) if length > step] or [0])
        assert needed <= count <= 21
        assert count == 21 or count % 4 == 0


def test_rows_leave_by_eights_for_multiples_of_four() -> None:
    assert schedule(LENGTHS["some leave"]).rows == [21, 21, 12, 12, 12]
    assert schedule(LENGTHS["most leave"]).rows == [21, 4, 4, 4, 4]
    assert schedule([3] * 15 + [1] * 6).rows == [21, 21, 21, 0, 0]  # 16 would be only 5 rows fewer


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_a_table_goes_through_a_loop_and_comes_back(lengths: list[int] | None) -> None:
    made, table = schedule(lengths), sample(21, 5, 3, seed=1)
    flat = made.flat(table)
    parts = made.cut(flat)
    assert [len(part) for part in parts] == made.rows
    for step, part in enumerate(parts):
        assert torch.equal(part, table[: len(part), step])
    padded = made.padded(flat)
    for step, count in enumerate(made.rows):
        assert torch.equal(padded[:count, step], table[:count, step])
        assert not padded[count:, step].any()


def test_what_is_cut_into_views_has_one_gradient() -> None:
    table = sample(6, 4, seed=1).requires_grad_()
    parts = split_rows(table, [3, 2, 1])
    assert all(part.data_ptr() == table[start:].data_ptr() for part, start in zip(parts, (0, 3, 5), strict=True))
    (found,) = torch.autograd.grad(sum((part * (i + 1)).sum() for i, part in enumerate(parts)), table)
    assert found[:, 0].tolist() == [1, 1, 1, 2, 2, 3]


def test_a_buffer_is_filled_without_a_gap_and_left_empty() -> None:
    buffer, like = GradientBuffer(), torch.zeros(1)
    places = [buffer.reserve(rows) for rows in (3, 3, 2)]
    written = [buffer.view(place, 5, like).fill_(value) for value, place in reversed(list(enumerate(places)))]
    for kind in range(2):
        joined = concatenated([one[kind] for one in reversed(written)])
        assert joined.data_ptr() == written[-1][kind].data_ptr()
        assert joined[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert buffer._tables == {}


def test_what_does_not_lie_side_by_side_is_copied_together() -> None:
    table = sample(6, 4, seed=1)
    for parts in (
        [table[:2], table[3:]],  # a gap
        [table[3:], table[:3]],  # the wrong order
        [table[:3], table[3:].clone()],  # another tensor
        [table[:3, :2], table[3:, :2]],  # parts of rows
        list(table.t().split(2)),
    ):
        joined = concatenated(parts)
        assert torch.equal(joined, torch.cat(parts))
        assert joined.data_ptr() != parts[0].data_ptr()
    assert concatenated(table.split(2)).data_ptr() == table.data_ptr()
    assert torch.equal(concatenated(table.split(2)), table)
