"""Matrix products by the fastest library for this processor: torch's own or oneDNN's."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from translate.kernels import reference
from translate.kernels.dispatch import kernel, uses_twin
from translate.machine import cpu_family, cpu_name

_MIN_ELEMENTS = 1 << 14  # of a matrix for which another library or layout is faster
_MIN_ROWS = 48  # of a product with a matrix that is not packed
_ZEN_5 = 26
_PACKED_FOR_ROWS = 64  # the number of rows oneDNN packs for; the layout serves other numbers as well


# -- one matrix, many products -----------------------------------------------------------------------------------------


class PackedWeight:
    """A matrix W (N, K) that does not change while products x Wᵀ are formed, without autograd.

    On AMD's processors oneDNN's own layout is faster than torch's: with 64 rows 1.18 times on Zen 4 and 2.4 times on
    Zen 5, with 5 rows more (1536 × 512, docs/search.md), and no row's result depends on the number of rows. On Intel's
    it is no faster, but a copy in rows is.
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._packed = self._rows = None  # at most one of them is set
        if uses_twin("linear"):
            return
        if suits_onednn(self._weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, _PACKED_FOR_ROWS)
        else:
            self._rows = in_rows(self._weight.t())

    def __deepcopy__(self, memo: dict[int, object]) -> PackedWeight:
        return self  # it never changes

    def __call__(self, inputs: Tensor, bias: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        """x Wᵀ, plus a bias (N,) or a table (M, N): (M, K) -> (M, N)."""
        if self._packed is not None and len(inputs) <= _most_packed_rows():
            product = _onednn_in_rounded_rows(inputs, self._packed, bias)
            return product if plus is None else product.add_(plus)
        rows = self._weight.t() if self._rows is None else self._rows
        added = bias if plus is None else plus
        return inputs @ rows if added is None else torch.addmm(added, inputs, rows)


def _most_packed_rows() -> int:
    """With more rows oneDNN is at most 10 % faster on Zen 4, but compiles many more programs (`round_up_rows`)."""
    return 1 << 30 if cpu_family() >= _ZEN_5 else 512


def in_rows(matrix: Tensor) -> Tensor:
    """The matrix in a layout that products read row by row: itself, or a copy.

    On Intel's processors x Wᵀ with a few rows is 1.2 to 1.9 times as fast from such a copy. Rows at distances of a
    multiple of 4 KiB would compete for few cache lines, so they get some padding.
    """
    rows, columns = matrix.shape
    crowded = columns * matrix.element_size() % 4096 == 0
    if "Intel" not in cpu_name() or (matrix.is_contiguous() and not crowded):
        return matrix
    return matrix.new_empty(rows, columns + 16 if crowded else columns)[:, :columns].copy_(matrix)


# -- large products, each once -----------------------------------------------------------------------------------------


@kernel(reference.linear)
def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: (…, K), (N, K), (N,) -> (…, N)."""
    if not _pays_when_used_once(math.prod(inputs.shape[:-1]), weight):
        return F.linear(inputs, weight, bias)
    product: Tensor = _Linear.apply(inputs.reshape(-1, weight.size(1)), weight, bias)  # type: ignore[no-untyped-call]
    return product.view(*inputs.shape[:-1], len(weight))


class _Linear(Function):
    """inputs (M, K), weight (N, K), bias (N,) -> (M, N)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return linear_no_grad(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        for_inputs, for_weight, for_bias = ctx.needs_input_grad
        return (
            linear_no_grad(grad, weight.t()) if for_inputs else None,
            weight_gradient(grad, inputs) if for_weight else None,
            grad.sum(dim=0) if for_bias else None,
        )


def linear_no_grad(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b without autograd; W may be a transposed view: (M, K), (N, K) -> (M, N)."""
    if not _pays_when_used_once(len(inputs), weight):
        return F.linear(inputs, weight, bias)
    return _onednn_in_rounded_rows(inputs, weight, bias)


def weight_gradient(grads: Tensor, inputs: Tensor) -> Tensor:
    """gᵀ x, the gradient of a weight, without autograd: (M, N), (M, K) -> (N, K)."""
    if not _pays_when_used_once(grads.size(1), inputs.t()):
        return grads.t() @ inputs
    rows = round_up_rows(len(grads))
    transposed = pad_rows(grads, rows).t().contiguous()  # (N, M); oneDNN would make this copy itself
    return _onednn(transposed, pad_rows(inputs, rows).t())


class WeightGradientSum:
    """Σ gᵀ x over chunks of rows: the gradient of a weight (N, K) with N much greater than K."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._total: Tensor | None = None  # (N, K)
        self._transposed: Tensor | None = None  # (K, N): transposing the inputs is cheaper, because they are smaller

    def add(self, grads: Tensor, inputs: Tensor) -> None:
        """grads (M, N), inputs (M, K), in the precision of the product."""
        if _pays_when_used_once(len(grads), self._weight):
            assert len(grads) == round_up_rows(len(grads)), "the caller pads rows"
            product = _onednn(inputs.t().contiguous(), grads.t())
            self._transposed = product if self._transposed is None else self._transposed.add_(product)
        elif self._total is not None and grads.dtype == self._total.dtype:
            self._total.addmm_(grads.t(), inputs)
        else:
            product = (grads.t() @ inputs).to(self._weight.dtype)
            self._total = product if self._total is None else self._total.add_(product)

    def total(self) -> Tensor:
        """The sum, once all chunks have been added."""
        parts = [self._total, None if self._transposed is None else self._transposed.t()]
        self._total = self._transposed = None
        added = [part for part in parts if part is not None]
        if not added:
            return torch.zeros_like(self._weight)
        return sum(added[1:], added[0]).contiguous()


def pad_rows_if_faster(inputs: Tensor, weight: Tensor) -> Tensor:
    """Inputs (M, K), with rows of zeros added if that makes products with the weight (N, K) faster."""
    return pad_rows(inputs, round_up_rows(len(inputs))) if _pays_when_used_once(len(inputs), weight) else inputs


def pad_rows(inputs: Tensor, rows: int) -> Tensor:
    """(M, K) -> (rows, K), contiguous; the added rows are zero."""
    if len(inputs) == rows:
        return inputs.contiguous()
    padded = inputs.new_empty(rows, inputs.size(1))
    padded[: len(inputs)] = inputs
    padded[len(inputs) :] = 0
    return padded


def round_up_rows(rows: int) -> int:
    """This number of rows or a few more: oneDNN compiles and keeps a program of 0.6 MB for every number of rows."""
    multiples = ((8, 1), (96, 4), (256, 16), (512, 32), (2048, 64))
    multiple = next((step for most, step in multiples if rows <= most), 1 << max(0, rows.bit_length() - 5))
    return -(-rows // multiple) * multiple


# -- oneDNN ------------------------------------------------------------------------------------------------------------


def _onednn_in_rounded_rows(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by oneDNN's program for the rounded number of rows: (M, K) -> (M, N)."""
    product = _onednn(pad_rows(inputs, round_up_rows(len(inputs))), weight, bias)
    return product if len(product) == len(inputs) else product[: len(inputs)]  # a slice of all rows costs a call too


def _onednn(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, where W may be packed: (M, K) -> (M, N)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def _pays_when_used_once(rows: int, weight: Tensor) -> bool:
    """Whether oneDNN's product is faster even if the matrix is used only once, so that its packing counts.

    On Zen 5 torch reaches 120 GFLOP/s and oneDNN 260; on Zen 4 98 and 98 to 106, which is not worth the memory
    (docs/decisions/speed.md).
    """
    return rows >= _MIN_ROWS and suits_onednn(weight) and cpu_family() >= _ZEN_5


def suits_onednn(weight: Tensor) -> bool:
    """Whether oneDNN's products with a packed matrix were measured to be faster here and support the precision."""
    return (
        not uses_twin("linear")
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= _MIN_ELEMENTS
        and "AMD" in cpu_name()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and not torch.is_autocast_enabled("cpu")
    )
