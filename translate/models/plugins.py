"""Plugins: the user's own files that add members to the zoo, given by `--plugin FILE.py`."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from translate.config.declarations import Declaration, either
from translate.config.members import MEMBERS
from translate.errors import ConfigError, RunError
from translate.models.families import FAMILIES, declare
from translate.models.member import Member

_NAME = re.compile("[a-z][a-z0-9_]*")
_OWN = ("name", "formula", "paper", "when")  # what a member may not inherit, because another member's would be wrong


@dataclass(frozen=True)
class Plugin:
    """A file of members, as it was when it was loaded, or when a run recorded it."""

    name: str
    """The file's name without its folder."""
    sha256: str
    members: tuple[str, ...]
    """The settings that choose its members, as in "attention.score=euclidean"."""


_loaded: dict[Path, Plugin] = {}


def loaded_plugins() -> tuple[Plugin, ...]:
    """All plugins of this process, in the order in which they were loaded."""
    return tuple(_loaded.values())


def load_plugins(paths: Iterable[Path]) -> None:
    """Run each file and add the members that it defines to the zoo; an unchanged file is run only once."""
    for path in paths:
        try:
            source, place = path.read_bytes(), path.resolve()
        except OSError as error:
            raise ConfigError(f"--plugin {path}: cannot be read: {error.strerror}.") from None
        digest = hashlib.sha256(source).hexdigest()
        before = _loaded.get(place)
        if before is None or before.sha256 != digest:
            module = _execute(path, source, f"translate_plugin_{path.stem}_{digest[:8]}")
            _loaded[place] = Plugin(path.name, digest, _register(path, module, before.members if before else ()))


def _execute(path: Path, source: bytes, name: str) -> ModuleType:
    """The file as a module; the bytes that run are those that were hashed."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1]
        what = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(f"--plugin {path}:{line}: {type(error).__name__}: {what}") from error
    return module


def _register(path: Path, module: ModuleType, replaced: tuple[str, ...]) -> tuple[str, ...]:
    """Add the members that a module defines; `replaced` are those of the file's previous version."""
    found = []
    for cls in vars(module).values():
        if not (isinstance(cls, type) and issubclass(cls, Member)) or cls.__module__ != module.__name__:
            continue
        if inspect.isabstract(cls) or "name" not in vars(cls):
            continue  # a base class of the file's own
        setting, row = _declaration(path, cls)
        if row.name in FAMILIES[setting].members and f"{setting}={row.name}" not in replaced:
            raise ConfigError(
                f"--plugin {path}: {cls.__name__}: the member {setting} = '{row.name}' already exists; "
                "give this one another name."
            )
        found.append((cls, setting, row))
    if not found:
        bases = either(family.base.__name__ for family in FAMILIES.values())
        raise ConfigError(
            f"--plugin {path}: it defines no member, that is, a class derived from {bases}, with its own name. "
            "docs/extending.md shows how."
        )
    for cls, setting, row in found:
        FAMILIES[setting].members[row.name] = cls
        cast(dict[str, Declaration], MEMBERS[setting])[row.name] = row
    return tuple(f"{setting}={row.name}" for _, setting, row in found)


def _declaration(path: Path, cls: type[Member]) -> tuple[str, Declaration]:
    """The family of a member, by its setting, and what it declares."""
    settings = [setting for setting, family in FAMILIES.items() if issubclass(cls, family.base)]
    try:
        if len(settings) != 1:
            raise ValueError(f"derive it from {either(family.base.__name__ for family in FAMILIES.values())}")
        for name in _OWN:
            if not isinstance(vars(cls).get(name), str):
                raise ValueError(f"it must define its own `{name}`, a text")
        if not _NAME.fullmatch(cls.name):
            raise ValueError(f"name = {cls.name!r}: use lower-case letters, digits and '_', beginning with a letter")
        return settings[0], declare(cls, settings[0])
    except ValueError as error:
        raise ConfigError(f"--plugin {path}: {cls.__name__}: {error}.") from None


# -- what a run records about them -------------------------------------------------------------------------------------


def plugins_of(members: Iterable[str]) -> list[Plugin]:
    """The loaded plugins to which one of these members belongs, given as in "attention.score=euclidean"."""
    wanted = set(members)
    return [plugin for plugin in loaded_plugins() if wanted & set(plugin.members)]


def changed_plugins(noted: Iterable[Plugin], run: str) -> list[str]:
    """A sentence for each recorded plugin whose file has changed since; a RunError if one is not loaded."""
    changed = []
    for note in noted:
        today = next((plugin for plugin in loaded_plugins() if set(note.members) <= set(plugin.members)), None)
        if today is None:
            raise RunError(
                f"{run} uses {' and '.join(note.members)} of the plugin {note.name} (SHA-256 {note.sha256[:12]}…): "
                f"give that file with --plugin {note.name}. A run never loads code by itself."
            )
        if today.sha256 != note.sha256:
            changed.append(
                f"the plugin {note.name} has changed since {run} was started (SHA-256 {note.sha256[:12]}… then, "
                f"{today.sha256[:12]}… now)"
            )
    return changed
