"""What several commands share: the search settings a user may override, and the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from translate.decoding.translator import Translator

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as `translate train` made it.")]
BeamOption = Annotated[
    int | None, typer.Option(min=1, help="Beam size; 1 is greedy search. Default: the run's setting.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a search setting, as in search.stop=full. Repeatable."),
]


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    if paths:
        from translate.models.plugins import load_plugins

        load_plugins(paths)
    return paths


PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        is_eager=True,
        callback=_load_plugins,
        help="A Python file with encoders, decoders, scores … of your own. Repeatable.",
    ),
]


def load_translator(
    run: Path,
    beam: int | None,
    device: str | torch.device,
    settings: Sequence[str] | None = None,
    ensemble: Sequence[Path] = (),
) -> Translator:
    """The run's best model, with its own search settings unless told otherwise."""
    from translate.config import change_search, override_search
    from translate.decoding.translator import Translator

    place = find_device(device) if isinstance(device, str) else device
    translator = Translator.load(run, place, ensemble)
    translator.search = change_search(override_search(translator.search, settings or ()), beam=beam)
    return translator


def find_device(name: str) -> torch.device:
    """The device that --device names."""
    from translate.device import resolve_device
    from translate.errors import UserError

    if name not in ("auto", "cpu", "cuda", "mps"):
        raise UserError(f"--device {name}: choose auto, cpu, cuda or mps.")
    return resolve_device(name)
