"""What is wrong with a setting, in plain words: where it is, what was found, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from translate.config.members import MEMBERS
from translate.config.settings import Config, Section, settings_of

# What pydantic calls a value that cannot be read: what was expected.
_KINDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "tuple_type": "a list in brackets",
    "list_type": "a list in brackets",
    "string_type": "a text",
}


def explain(key: str, problem: Any) -> str:
    """What pydantic found wrong with the setting at `key`."""
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        parent, _, name = key.rpartition(".")
        section = settings_of(parent)
        known = list(section.model_fields) if section is not None else []
        close = difflib.get_close_matches(name, known, n=1)
        elsewhere = [place for place in leaves(all_settings()) if place.rpartition(".")[2] == name]
        if close:
            hint = f"Did you mean '{close[0]}'?"
        elif elsewhere:
            hint = f"Did you mean {' or '.join(map(repr, elsewhere))}?"
        else:
            hint = f"There are: {', '.join(known)}."
        return f"{key}: unknown setting. {hint}"
    if kind == "missing":
        return f"{key}: this setting is missing, and has no default."
    if kind == "literal_error":
        close = difflib.get_close_matches(str(value), re.findall("'([^']*)'", problem["ctx"]["expected"]), n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        if not close and key.removeprefix("model.") in MEMBERS:
            hint = " A member of your own needs --plugin FILE."
        return f"{key}: {value!r} is not one of {problem['ctx']['expected']}.{hint}"
    if kind == "model_type":
        return f"{key}: {value!r}: this is a section; name a setting in it, as in {_example(key)}."
    if kind in _KINDS:
        return f"{key}: {value!r}: {_KINDS[kind]} is needed{_as_in(key)}."
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {value!r}: {message[0].lower()}{message[1:]}"


def where(key: str, problem: Any, origin: str, overridden: Sequence[str]) -> str:
    """Whether the file or the command line gave the setting at `key`; a check across settings may concern both."""
    inside = any(not key or leaf.startswith(f"{key}.") for leaf in overridden)
    if problem["type"] == "value_error" and inside:
        return f"{origin} with the command line"
    return "command line" if inside or any(f"{key}.".startswith(f"{leaf}.") for leaf in overridden) else origin


def leaves(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted names of all settings in a tree."""
    found = []
    for key, value in tree.items():
        found += leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return found


def all_settings(section: type[Section] | None = None) -> dict[str, Any]:
    """All settings and their defaults, as a tree."""
    tree: dict[str, Any] = {}
    for name, field in (section or Config).model_fields.items():
        below = field.annotation
        tree[name] = all_settings(below) if isinstance(below, type) and issubclass(below, Section) else field.default
    return tree


def _as_in(key: str) -> str:
    """An example of a setting, if it has a default that can be shown."""
    parent, _, name = key.rpartition(".")
    section = settings_of(parent)
    field = section.model_fields.get(name) if section is not None else None
    if field is None or not isinstance(field.default, int | float | str | tuple):
        return ""
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    shown = (
        f"[{', '.join(map(str, default))}]" if isinstance(default, list) else tomli_w.dumps({"": default})[5:].strip()
    )
    return f", as in {key}={shown}"


def _example(key: str) -> str:
    return next((f"{key}.{leaf}=…" for leaf in leaves(all_settings(settings_of(key)))), key)
