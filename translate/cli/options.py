"""What several commands share: the search settings a user may override, and the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from translate.decoding.translator import Translator

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as `translate train` made it.")]
BeamOption = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. The run's own if left out.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def load_translator(run: Path, beam: int | None, device: str) -> Translator:
    """The run's best model, with its own search settings unless told otherwise."""
    from translate.decoding.translator import Translator
    from translate.errors import UserError
    from translate.training.precision import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UserError(f"--device {device}: there are auto, cpu, cuda and mps.")
    translator = Translator.load(run, resolve_device(device))
    if beam is not None:
        translator.search = translator.search.model_copy(update={"beam": beam})
    return translator
