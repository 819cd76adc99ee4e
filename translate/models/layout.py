"""Products with one matrix again and again, as this processor forms them fastest."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from translate.process import cpu_name

_LEAST = 1 << 14  # numbers of a matrix that is worth the trouble
_MOST_ROWS = 512  # more gain a tenth only, and would be many more different numbers (`rounded`)
_ROWS = 64  # what oneDNN is told to expect; its layout is as good for others


class Laid:
    """A matrix W (N, K) that does not change while products x Wᵀ are formed, for the plain numbers without autograd.

    On AMD's processors (Zen 4) oneDNN's own layout is 1.18 times as fast as torch's with 64 rows, 2.3 times with 5 rows
    (1536 × 512, docs/search.md), and no row's result depends on how many others there are. On Intel's it gains nothing,
    but rows that are well laid do.
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
        if self._packed is not None and len(inputs) <= _MOST_ROWS:
            return self._by_onednn(self._packed, inputs, bias, plus)
        rows = self._weight.t() if self._rows is None else self._rows
        added = bias if plus is None else plus
        return inputs @ rows if added is None else torch.addmm(added, inputs, rows)

    @staticmethod
    def _by_onednn(packed: Tensor, inputs: Tensor, bias: Tensor | None, plus: Tensor | None) -> Tensor:
        rows = len(inputs)
        more = rounded(rows) - rows
        if more:
            inputs = F.pad(inputs, (0, 0, 0, more))
        found: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, bias, "none", [], "")[:rows]
        return found if plus is None else found.add_(plus)


def rounded(rows: int) -> int:
    """So many rows or a few more: oneDNN writes a program of 0.6 MB for every number of rows and keeps it."""
    apart = 1 if rows <= 8 else 4 if rows <= 96 else 16 if rows <= 256 else 32
    return -(-rows // apart) * apart


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
