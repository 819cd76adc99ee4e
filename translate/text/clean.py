"""Which pairs are used, and how many were left out and why. Pairs are judged as pairs, so the sides never shift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from translate.config import DataConfig

Reason = Literal["empty side", "too long", "length ratio"]


@dataclass
class FilterReport:
    """How many pairs were read, how many kept, and why the others were not."""

    max_length: int
    max_ratio: float
    total: int = 0
    kept: int = 0
    left_out: dict[Reason, int] = field(default_factory=lambda: {"empty side": 0, "too long": 0, "length ratio": 0})

    def add(self, reason: Reason | None, num_pairs: int = 1) -> None:
        """Count pairs that are left out for this reason, or kept if there is none."""
        self.total += num_pairs
        if reason is None:
            self.kept += num_pairs
        else:
            self.left_out[reason] += num_pairs

    def __str__(self) -> str:
        explained: dict[Reason, str] = {
            "empty side": "with an empty side",
            "too long": f"longer than {self.max_length:,} pieces",
            "length ratio": f"with one side more than {self.max_ratio:g} times as long as the other",
        }
        reasons = [f"{count:,} {explained[reason]}" for reason, count in self.left_out.items() if count]
        left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
        return f"{self.total:,} {'pair' if self.total == 1 else 'pairs'} read, {self.kept:,} kept{left_out}"


def why_left_out(num_src: int, num_tgt: int, data: DataConfig) -> Reason | None:
    """Why a pair of this many pieces on each side is not trained on, or None if it is."""
    shorter, longer = sorted((num_src, num_tgt))
    if shorter == 0:
        return "empty side"
    if data.max_length and longer > data.max_length:
        return "too long"
    if data.max_ratio and longer > data.max_ratio * shorter:
        return "length ratio"
    return None
