"""Devices and number formats. The same code path runs on CPU and GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from translate.errors import ConfigError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """The device a setting names, or an error if this machine lacks it."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        there = ", ".join(device for device, found in available.items() if found)
        raise ConfigError(f"train.device = '{name}': this machine has none. It has: {there}. 'auto' takes the best.")
    return torch.device(name)


def resolve_precision(name: str, device: torch.device) -> Literal["fp32", "bf16", "fp16"]:
    """The number format of the matrix products."""
    if name == "auto":
        if device.type != "cuda":
            return "fp32"
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    assert name in ("fp32", "bf16", "fp16")
    return name  # type: ignore[return-value]


def has_half_products() -> bool:
    """Whether this processor multiplies in bf16 itself: AVX512's instructions for it, or AMX."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in ("avx512_bf16", "amx_bf16"))


class Precision:
    """Autocast and loss scaling for one device and format."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = resolve_precision(name, device)
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32 for what stays in float32

    def autocast(self) -> AbstractContextManager[None]:
        """Matrix products in the chosen format; softmax and loss stay in float32."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.name])  # type: ignore[no-any-return,unused-ignore]
