"""`translate zoo`."""

from __future__ import annotations

from typing import Any


def command() -> None:
    """The encoders, decoders, scores, scopes and selections, with their formulas and papers."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for setting, members in zoo().items():
        console.print(Text(setting, style="bold"))
        for name, member in members.items():
            console.print(Padding(Text.assemble((name, "bold cyan"), "  ", member.formula), (0, 0, 0, 2)))
            summary = (member.__doc__ or "").split("\n")[0]
            console.print(Padding(Text(f"{summary} {member.when} [{member.paper}]"), (0, 0, 0, 6)))
        console.print()


def zoo() -> dict[str, dict[str, Any]]:
    """Every table of the algebra, under the setting that chooses from it."""
    from translate.models.attention import SCOPES, SELECTIONS
    from translate.models.decoders import DECODERS
    from translate.models.encoders import ENCODERS
    from translate.models.scores import SCORES

    return {
        "model.encoder.kind": {**ENCODERS},
        "model.decoder.kind": {**DECODERS},
        "model.attention.score": {**SCORES},
        "model.attention.scope": {**SCOPES},
        "model.attention.selection": {**SELECTIONS},
    }
