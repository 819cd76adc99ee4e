"""Write docs/settings.md, the list of all settings with their meanings and defaults.

python scripts/write_settings.py
"""

from __future__ import annotations

from pathlib import Path

from translate.cli.init import commented_config
from translate.training.prepare import MAY_CHANGE, MAY_CHANGE_SECTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"


def page() -> str:
    """The whole page."""
    free = ", ".join([*(f"`{key}`" for key in MAY_CHANGE), *(f"`{section}*`" for section in MAY_CHANGE_SECTIONS)])
    return (
        "# All settings\n\n"
        "Written by `python scripts/write_settings.py`. Each setting stands under its meaning, with its default where\n"
        "it has one; on a command line it is given with its section, as in `train.steps=500`.\n\n"
        f"A run that goes on with `--resume` may change\n{free};\nanything else would make it another run.\n\n"
        f"```toml\n{commented_config({})}```\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
