"""torch.compile, where it can be had."""

from __future__ import annotations

from typing import Any

import torch

from translate.models.decoders import Decoder, RecurrentDecoder


def compile_step(decoder: Decoder[Any]) -> str:
    """Compile what a decoder does at each step, if this machine can; gives the line that says so."""
    if not isinstance(decoder, RecurrentDecoder):
        return "train.compile: only the steps of recurrent decoders are compiled; training goes on without it."
    try:
        # The cheapest function there is: a missing compiler shows here and not in the middle of the first update.
        torch.compile(torch.add)(torch.ones(2), 1)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        return f"train.compile: torch.compile does not work here ({reason}); training goes on without it."
    decoder.transition = torch.compile(decoder.transition, dynamic=True)  # type: ignore[method-assign]
    return "train.compile: the decoder's step is compiled with the first updates, which takes a minute or two."
