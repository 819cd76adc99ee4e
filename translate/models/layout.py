"""Products with one matrix again and again, as this processor forms them fastest."""

from __future__ import annotations

import torch
from torch import Tensor

from translate.process import cpu_name

_LEAST = 1 << 14  # numbers of a matrix that is worth the trouble
_ROWS = 64  # what oneDNN is told to expect; its layout is as good for others


class Laid:
    """A matrix W (N, K) that does not change while products x Wᵀ are formed, for the plain numbers without autograd.

    On AMD's processors (Zen 4) oneDNN forms them faster than torch's own way, and faster still from its own layout:
    with 64 rows 1.04 and 1.18 times, with 5 rows 1.2 and 2.3 times (1536 × 512, docs/search.md). There no row's result
    depends on how many others there are. On Intel's it gains nothing, but rows that are well laid do.
    """

    def __init__(self, weight: Tensor, again: bool) -> None:
        """`again` tells that there will be several products, so that another layout pays."""
        weight = weight.detach()
        self._weight: Tensor | None = None  # as oneDNN is to have it
        if _suits_onednn(weight):
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS) if again else weight
        else:
            self._rows = in_rows(weight.t()) if again else weight.t()

    @classmethod
    def fixed(cls, weight: Tensor) -> Laid | None:
        """A matrix that will not change any more, if it gains from another layout than columns."""
        laid = cls(weight, again=True)
        return laid if laid.is_packed else None

    @property
    def is_usable(self) -> bool:
        """Whether nobody asks for a gradient or another precision."""
        return not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")

    def __deepcopy__(self, memo: dict[int, object]) -> Laid:
        return self  # nothing of it ever changes

    @property
    def is_packed(self) -> bool:
        """Whether it is in oneDNN's own layout."""
        return self._weight is not None and self._weight.is_mkldnn

    def __call__(self, inputs: Tensor, bias: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        """x Wᵀ, plus a bias (N,) or a table (M, N): (M, K) -> (M, N)."""
        added = bias if plus is None else plus
        if self._weight is None:
            rows = self._rows.to(inputs.dtype)
            return inputs @ rows if added is None else torch.addmm(added, inputs, rows)
        product = torch.ops.mkldnn._linear_pointwise
        found: Tensor = (
            product(inputs, self._weight, bias, "none", [], "")
            if plus is None
            else product.binary(inputs, plus, self._weight, bias, "add")
        )
        return found


def _suits_onednn(weight: Tensor) -> bool:
    """Whether oneDNN's products pay here: where that was measured, and where nobody asks for another precision."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= _LEAST
        and "AMD" in cpu_name()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


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
