"""Print the lowest versions that pyproject.toml allows of what the program needs, as constraints for pip.

python scripts/lowest_versions.py > lowest.txt
python -m pip install --editable ".[dev]" --constraint lowest.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(requirements: Iterable[str]) -> list[str]:
    """`name==version` for each `name>=version`, whatever else is required of it."""
    found = []
    for requirement in requirements:
        bound = re.fullmatch(r"([\w.-]+)\s*>=\s*([\w.]+)\s*(,.*)?", requirement)
        if bound is None:
            raise ValueError(f"{requirement}: begins with no lowest version, as in numpy>=2.0")
        found.append(f"{bound[1]}=={bound[2]}")
    return found


def main() -> None:
    """Print them."""
    requirements = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    try:
        print("\n".join(lowest(requirements)))
    except ValueError as error:
        sys.exit(f"{PROJECT.name}: {error}")


if __name__ == "__main__":
    main()
