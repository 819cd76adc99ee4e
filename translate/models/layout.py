"""Matrix products as this processor forms them fastest: torch's own, or oneDNN's."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from translate.process import cpu_family, cpu_name

_LEAST = 1 << 14  # numbers of a matrix that is worth the trouble
_LEAST_ROWS = 48  # of a product with a matrix that is not packed
_ZEN_5 = 26
_ROWS = 64  # what oneDNN is told to expect; its layout is as good for others


# -- one matrix again and again ----------------------------------------------------------------------------------------


class Laid:
    """A matrix W (N, K) that does not change while products x Wᵀ are formed, for the plain numbers without autograd.

    On AMD's processors oneDNN's own layout is faster than torch's: with 64 rows 1.18 times on Zen 4 and 2.4 times on
    Zen 5, with 5 rows more (1536 × 512, docs/search.md), and no row's result depends on how many others there are. On
    Intel's it gains nothing, but rows that are well laid do.
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._packed = self._rows = None  # one of them is there, if the processor likes it better than the weight
        if _suits_onednn(self._weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, _ROWS)
        else:
            self._rows = in_rows(self._weight.t())

    @classmethod
    def fixed(cls, weight: Tensor) -> Laid | None:
        """A matrix that will not change any more, if it gains from another layout than columns."""
        return cls(weight) if _suits_onednn(weight) else None

    @property
    def is_usable(self) -> bool:
        """Whether nobody asks for a gradient or another precision."""
        return not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")

    def __deepcopy__(self, memo: dict[int, object]) -> Laid:
        return self  # nothing of it ever changes

    def __call__(self, inputs: Tensor, bias: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        """x Wᵀ, plus a bias (N,) or a table (M, N): (M, K) -> (M, N)."""
        if self._packed is not None and len(inputs) <= _most_rows():
            found = _in_rounded_rows(inputs, self._packed, bias)
            return found if plus is None else found.add_(plus)
        rows = self._weight.t() if self._rows is None else self._rows
        added = bias if plus is None else plus
        return inputs @ rows if added is None else torch.addmm(added, inputs, rows)


def _most_rows() -> int:
    """With more, oneDNN gains a tenth at most on Zen 4, for many more numbers of rows (`rounded`)."""
    return 1 << 30 if cpu_family() >= _ZEN_5 else 512


def _well_laid(matrix: Tensor) -> bool:
    """Rows a multiple of 4 KiB apart would fall onto the same few places of the cache."""
    return matrix.is_contiguous() and matrix.size(1) * matrix.element_size() % 4096 != 0


def in_rows(matrix: Tensor) -> Tensor:
    """The matrix so that products read it row by row, its rows well laid: as it is, or a copy.

    On Intel's processors x Wᵀ of a few rows runs 1.2 to 1.9 times as fast from such a copy.
    """
    if _well_laid(matrix) or "Intel" not in cpu_name():
        return matrix
    rows, columns = matrix.shape
    apart = columns + 16 if columns * matrix.element_size() % 4096 == 0 else columns
    return matrix.new_empty(rows, apart)[:, :columns].copy_(matrix)


# -- large products, each once -----------------------------------------------------------------------------------------


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b and its gradients: (…, K) and (N, K) -> (…, N), as torch's function of that name."""
    if not _gains(math.prod(inputs.shape[:-1]), weight):
        return F.linear(inputs, weight, bias)
    found: Tensor = _Linear.apply(inputs.reshape(-1, weight.size(1)), weight, bias)  # type: ignore[no-untyped-call]
    return found.view(*inputs.shape[:-1], len(weight))


class _Linear(Function):
    """inputs (M, K), weight (N, K), bias (N,) -> (M, N)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return times(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        return (
            times(grad, weight.t()) if of_inputs else None,
            summed_over_rows(grad, inputs) if of_weight else None,
            grad.sum(dim=0) if of_bias else None,
        )


def times(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b without autograd, whichever way they lie: (M, K) and (N, K) -> (M, N)."""
    if not _gains(len(inputs), weight):
        return F.linear(inputs, weight, bias)
    return _in_rounded_rows(inputs, weight, bias)


def summed_over_rows(grads: Tensor, inputs: Tensor) -> Tensor:
    """gᵀ x, the gradient of a weight, without autograd: (M, N) and (M, K) -> (N, K)."""
    if not _gains(grads.size(1), inputs.t()):
        return grads.t() @ inputs
    rows = rounded(len(grads))
    turned = filled(grads, rows).t().contiguous()  # (N, M); oneDNN would itself make this copy
    return _by_onednn(turned, filled(inputs, rows).t())


class SumOverRows:
    """Σ gᵀ x over chunks of rows, the gradient of a weight (N, K) that is much wider than its inputs."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._total: Tensor | None = None  # (N, K)
        self._turned: Tensor | None = None  # (K, N), whose inputs are the few numbers that have to be turned round

    def add(self, grads: Tensor, inputs: Tensor) -> None:
        """grads (M, N), inputs (M, K), in the precision in which they are to be multiplied."""
        if _gains(len(grads), self._weight):
            assert len(grads) == rounded(len(grads)), "rows are filled up before there are many numbers to a row"
            found = _by_onednn(inputs.t().contiguous(), grads.t())
            self._turned = found if self._turned is None else self._turned.add_(found)
        elif self._total is not None and grads.dtype == self._total.dtype:
            self._total.addmm_(grads.t(), inputs)
        else:
            found = (grads.t() @ inputs).to(self._weight.dtype)
            self._total = found if self._total is None else self._total.add_(found)

    def total(self) -> Tensor:
        """What has been added, once all is."""
        parts = [part for part in (self._total, None if self._turned is None else self._turned.t()) if part is not None]
        self._total = self._turned = None
        if not parts:
            return torch.zeros_like(self._weight)
        return sum(parts[1:], parts[0]).contiguous()


def filled_up(inputs: Tensor, weight: Tensor) -> Tensor:
    """Inputs (M, K) with as many rows of zeros as make products with the weight (N, K) fast, if that is so."""
    return filled(inputs, rounded(len(inputs))) if _gains(len(inputs), weight) else inputs


def filled(inputs: Tensor, rows: int) -> Tensor:
    """(M, K) -> so many rows, lying one after the other; those that are new are zero."""
    if len(inputs) == rows:
        return inputs.contiguous()
    more = inputs.new_empty(rows, inputs.size(1))
    more[: len(inputs)] = inputs
    more[len(inputs) :] = 0
    return more


def rounded(rows: int) -> int:
    """So many rows or a few more: oneDNN writes a program of 0.6 MB for every number of rows and keeps it."""
    steps = ((8, 1), (96, 4), (256, 16), (512, 32), (2048, 64))
    apart = next((apart for most, apart in steps if rows <= most), 1 << max(0, rows.bit_length() - 5))
    return -(-rows // apart) * apart


# -- oneDNN ------------------------------------------------------------------------------------------------------------


def _in_rounded_rows(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by a program for a rounded number of rows, of which those that were asked for: (M, K) -> (M, N)."""
    found = _by_onednn(filled(inputs, rounded(len(inputs))), weight, bias)
    return found if len(found) == len(inputs) else found[: len(inputs)]  # a slice of everything costs a call as well


def _by_onednn(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, where W may be packed: (M, K) -> (M, N)."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return found


def _gains(rows: int, weight: Tensor) -> bool:
    """Whether oneDNN's product of so many rows pays though the matrix is used once.

    torch's runs at 120 GFLOP/s on Zen 5 and oneDNN's at 260; on Zen 4 it is 98 and 98 to 106, which is not worth the
    memory (docs/decisions.md).
    """
    return rows >= _LEAST_ROWS and _suits_onednn(weight) and cpu_family() >= _ZEN_5


def _suits_onednn(weight: Tensor) -> bool:
    """Whether oneDNN's products pay here: where that was measured, and where nobody asks for another precision."""
    return (
        not torch.compiler.is_compiling()  # first: the compiler should not look at the rest
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= _LEAST
        and "AMD" in cpu_name()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and not torch.is_autocast_enabled("cpu")
    )
