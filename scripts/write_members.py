"""Write translate/config/members.py, what settings know of the members of the zoo, from what their classes declare.

python scripts/write_members.py
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from translate.config.declarations import Declaration
from translate.models.families import FAMILIES, declare

PAGE = Path(__file__).resolve().parent.parent / "translate" / "config" / "members.py"


def page() -> str:
    """The whole file."""
    rows = ", ".join(sorted(family.row.__name__ for family in FAMILIES.values()))
    parts = [
        '"""The members of the zoo as settings know them, written by `python scripts/write_members.py`.\n\n'
        "Plugins add rows while they are loaded.\n"
        '"""\n\n'
        "# fmt: off\n"
        "# ruff: noqa: E501, I001\n"
        "from collections.abc import Mapping\n\n"
        f"from translate.config.declarations import Declaration, {rows}\n"
    ]
    for setting, family in FAMILIES.items():
        lines = [f"{family.title}: dict[str, {family.row.__name__}] = {{"]
        for member in family.members.values():
            lines += _row(declare(member, setting))
        parts.append("\n".join([*lines, "}\n"]))
    tables = [f"    {_text(setting)}: {family.title}," for setting, family in FAMILIES.items()]
    head = "# By the setting that names a member, as in model.encoder.kind.\n"
    parts.append("\n".join([f"{head}MEMBERS: Mapping[str, Mapping[str, Declaration]] = {{", *tables, "}\n"]))
    return "\n".join(parts)


def _row(member: Declaration) -> list[str]:
    lines = [f"    {_text(member.name)}: {type(member).__name__}("]
    lines += [f"        {field.name}={_text(getattr(member, field.name))}," for field in fields(member)]
    return [*lines, "    ),"]


def _text(value: Any) -> str:
    """A value as Python has it, in double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(key)}: {_text(one)}' for key, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
