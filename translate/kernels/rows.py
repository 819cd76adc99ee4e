"""Rows of tables: which of a batch take part in a loop's steps, their order, and slices that fit into the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from translate.kernels import reference
from translate.kernels.dispatch import kernel
from translate.kernels.shared_gradients import concatenated

_CACHED_ELEMENTS = 1 << 18  # what stays in a core's own cache between two passes over it
_MIN_LEAVING = 8  # rows that are worth a smaller batch
_MULTIPLE = 4  # products run faster on multiples of four rows


def cached_slices(rows: int, width: int, device: torch.device) -> list[slice]:
    """Slices of rows that are still in the cache when a second pass begins; on a GPU, one slice."""
    most = max(1, _CACHED_ELEMENTS // max(1, width)) if device.type == "cpu" else max(1, rows)
    return [slice(begin, min(begin + most, rows)) for begin in range(0, rows, most)]


class RowSchedule:
    """How many rows of a batch take part in each step of a loop over (B, T) tokens: those that have not ended.

    With the lengths (B,), longest first and on the CPU, rows leave when they have ended; without, all stay.
    """

    def __init__(self, tokens: Tensor, lengths: Tensor | None = None) -> None:
        self.shape = tokens.shape
        num_rows, num_steps = tokens.shape
        self.rows = [num_rows] * num_steps
        if lengths is not None:
            later = lengths.flip(0).cummax(dim=0).values  # the longest of the last 1, 2, … rows
            needed = (later.unsqueeze(0) > torch.arange(num_steps).unsqueeze(1)).sum(dim=1)  # (T,)
            for step, count in enumerate(((needed + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE).tolist()):
                before = self.rows[step - 1] if step else num_rows
                self.rows[step] = count if count <= before - _MIN_LEAVING else before
        self._places: Tensor | None = None  # (N,), in the flat (T, B) table; None where no row leaves
        if sum(self.rows) < num_rows * num_steps:
            places = torch.cat([torch.arange(count) + step * num_rows for step, count in enumerate(self.rows)])
            self._places = places.to(tokens.device, non_blocking=True)

    def flat(self, table: Tensor) -> Tensor:
        """(B, T, …) -> (N, …), one step after the other."""
        flat = table.transpose(0, 1).flatten(0, 1)
        return flat if self._places is None else flat.index_select(0, self._places)

    def padded(self, flat: Tensor) -> Tensor:
        """(N, …) -> (B, T, …), zero where a row has left."""
        num_rows, num_steps = self.shape
        if self._places is not None:
            flat = flat.new_zeros(num_rows * num_steps, *flat.shape[1:]).index_copy(0, self._places, flat)
        return flat.unflatten(0, (num_steps, num_rows)).transpose(0, 1)

    def cut(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The rows (N, …) of each step: (B, …) each."""
        return split_rows(flat, self.rows)


@kernel(reference.split_rows)
def split_rows(table: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Cut a table (N, C) into consecutive parts of these sizes."""
    parts: tuple[Tensor, ...] = _SplitRows.apply(table, sizes)  # type: ignore[no-untyped-call]
    return parts


class _SplitRows(Function):
    """Parts whose gradients need not be joined if they lie side by side already."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        return table.split(list(sizes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return concatenated(grads), None


@kernel(reference.reorder)
def reorder(rows: Tensor, order: Tensor) -> Tensor:
    """Rows (N, W) in another order (N,), one that is its own inverse."""
    reordered: Tensor = _Reorder.apply(rows, order)  # type: ignore[no-untyped-call]
    return reordered


class _Reorder(Function):
    """The gradient is reordered in the same way, where autograd would add rows up one by one."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        reordered: Tensor = _Reorder.apply(grad, order)  # type: ignore[no-untyped-call]
        return reordered, None
