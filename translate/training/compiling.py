"""torch.compile, where it works."""

from __future__ import annotations

from typing import Any

import torch

from translate.models.decoders import Decoder, RecurrentDecoder


def compile_step(decoder: Decoder[Any]) -> str:
    """Compile a decoder's step if possible; returns a message about the outcome."""
    if not isinstance(decoder, RecurrentDecoder):
        return "train.compile: only the steps of recurrent decoders are compiled; training goes on without it."
    try:
        # A trivial function, so that a missing compiler is found here and not in the middle of the first update.
        torch.compile(torch.add)(torch.ones(2), 1)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        return f"train.compile: torch.compile does not work here ({reason}); training goes on without it."
    decoder.transition = torch.compile(decoder.transition, dynamic=True)  # type: ignore[method-assign]
    return "train.compile: the decoder's step is compiled with the first updates, which takes a minute or two."
