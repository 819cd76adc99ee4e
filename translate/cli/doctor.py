"""`translate doctor`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False) -> None:
    """What this machine offers: devices, number formats, threads, versions."""
    import json

    facts = describe_machine()
    if as_json:
        print(json.dumps(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def describe_machine() -> dict[str, str]:
    """The facts of this machine, by name."""
    import os
    import platform
    import shutil
    import sys
    from importlib.metadata import version

    import torch

    import translate
    from translate.device import has_half_products, resolve_device, resolve_precision
    from translate.machine import cpu_name

    device = resolve_device("auto")
    cuda = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"
    free = shutil.disk_usage(".").free / 2**30
    return {
        "translate": translate.__version__,
        "python": f"{sys.version.split()[0]} on {platform.platform()}",
        "torch": torch.__version__,
        "sentencepiece": version("sentencepiece"),
        "sacrebleu": version("sacrebleu"),
        "cuda devices": cuda,
        "apple mps": "yes" if torch.backends.mps.is_available() else "none",
        "train.device=auto": device.type,
        "train.precision=auto": resolve_precision("auto", device),
        "processor": cpu_name() or "unknown",
        "cores": str(os.cpu_count()),
        "torch threads": str(torch.get_num_threads()),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16 on the CPU": "yes" if has_half_products() else "no",
        "free disk here": f"{free:.1f} GiB",
    }
