"""Train an attention-based translator from the command line, and inspect its attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from translate.decoding.translator import Translator

__version__ = "0.1.0"


def load(
    run: str | PathLike[str],
    device: str = "cpu",
    ensemble: Sequence[str | PathLike[str]] = (),
    plugins: Sequence[str | PathLike[str]] = (),
) -> Translator:
    """A run's best model, ready to translate; see `Translator.translate`."""
    from pathlib import Path

    from translate.decoding.translator import Translator
    from translate.models.plugins import load_plugins

    load_plugins(map(Path, plugins))
    return Translator.load(Path(run), device, [Path(other) for other in ensemble])
