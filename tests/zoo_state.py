"""The members of the zoo, put back as they were after a plugin was loaded inside this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def restored_zoo() -> Iterator[None]:
    """A plugin that is loaded meanwhile is forgotten at the end."""
    from translate.config.members import MEMBERS
    from translate.models import plugins
    from translate.models.families import FAMILIES

    tables: list[Any] = [plugins._loaded, *MEMBERS.values(), *(family.members for family in FAMILIES.values())]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
