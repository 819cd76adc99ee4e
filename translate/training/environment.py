"""What a run records about the machine and the versions it is trained with."""

from __future__ import annotations

import platform

import sentencepiece
import torch

import translate
from translate.machine import cpu_name


def describe_start(device: torch.device, precision: str, threads: int) -> dict[str, str | int]:
    """Versions, processor and device of one start of training."""
    facts: dict[str, str | int] = {
        "translate": translate.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sentencepiece": sentencepiece.__version__,
        "processor": cpu_name(),
        "device": device.type,
        "precision": precision,
        "threads": threads,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts
