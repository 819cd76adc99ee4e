"""Reading settings: a TOML file, `key=value` overrides, and the checks of the result."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import ValidationError

from translate.config.messages import explain, leaves, where
from translate.config.settings import HUB_PREFIX, Config, SearchConfig, settings_of
from translate.errors import ConfigError

_PATHS = (
    *(("data", "folder"), ("train", "init_from"), ("train", "source_embeddings"), ("train", "target_embeddings")),
    ("train", "guided", "links"),
)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, apply `key=value` overrides, and check the result.

    Paths in the file are relative to the file, paths in overrides to the current directory; both come out absolute.
    """
    try:
        with path.open("rb") as file:
            tree = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. `translate init DIR --source F --target F` writes one.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the configuration file in it.") from None
    except OSError as error:
        raise ConfigError(f"{path}: not readable: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}. `translate init DIR --source F --target F` writes a valid one."
        ) from None
    _make_absolute(tree, path.resolve().parent)
    given: dict[str, Any] = {}
    for override in overrides:
        _set_by_path(given, *_split_override(override))
    _make_absolute(given, Path.cwd())
    return check_config(_merge(tree, given), origin=str(path), overridden=leaves(given))


def check_config(tree: Mapping[str, Any], origin: str, overridden: Sequence[str] = ()) -> Config:
    """Turn a plain tree of settings into a Config, or say which setting is wrong."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"])
            lines.append(f"{where(key, problem, origin, overridden)}: {explain(key, problem)}")
        raise ConfigError("\n".join(lines)) from None


def dump_config(config: Config) -> str:
    """The configuration as TOML; `load_config` of it gives an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def change_search(search: SearchConfig, **changes: Any) -> SearchConfig:
    """Search settings with some changed and checked again; None means unchanged."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return SearchConfig.model_validate({**search.model_dump(), **given})
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(["search", *map(str, problem["loc"])])
        raise ConfigError(explain(key, problem)) from None


def override_search(search: SearchConfig, overrides: Sequence[str]) -> SearchConfig:
    """Search settings with `search.key=value` overrides from a command line."""
    given: dict[str, Any] = {}
    for override in overrides:
        key, value = _split_override(override)
        section, _, name = key.partition(".")
        if section != "search" or name not in SearchConfig.model_fields:
            close = difflib.get_close_matches(name, SearchConfig.model_fields, n=1) if section == "search" else []
            hint = f"Did you mean 'search.{close[0]}'?" if close else "It changes settings of [search] only."
            raise ConfigError(f"--set {override}: unknown setting. {hint}")
        given[name] = value
    return change_search(search, **given)


def reverse_config(config: Config) -> Config:
    """The same configuration for the other direction."""
    data, train = config.data, config.train
    swapped = data.model_copy(
        update={
            "source_lang": data.target_lang,
            "target_lang": data.source_lang,
            "columns": (data.columns[1], data.columns[0]),
        }
    )
    vectors = {"source_embeddings": train.target_embeddings, "target_embeddings": train.source_embeddings}
    return config.model_copy(update={"data": swapped, "train": train.model_copy(update=vectors)})


def resolve_threads(config: Config) -> Config:
    """Replace `train.threads = 0` by this machine's number of cores, because the number is part of the run."""
    if config.train.threads:
        return config
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return config.model_copy(update={"train": config.train.model_copy(update={"threads": threads})})


def _split_override(override: str) -> tuple[str, Any]:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"command line: '{override}' is not of the form key=value, as in train.steps=500")
    parent, _, name = key.rpartition(".")
    section = settings_of(parent)
    field = section.model_fields.get(name) if section is not None else None
    values = get_args(field.annotation) if field is not None else ()
    named = (
        field is not None
        and get_origin(field.annotation) is not tuple
        and (field.annotation is str or any(isinstance(value, str) or value is str for value in values))
    )
    listed = raw.startswith("[") and any(get_origin(value) is list for value in values)
    if named and not listed:
        return key, raw  # a name is taken as it stands: data.source_lang=no is Norwegian
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        if listed:
            raise ConfigError(
                f"command line: {override}: a list of names needs quotes inside, and quotes outside that keep them "
                f'from the shell, as in \'{key}=["one", "two"]\''
            ) from None
        return key, raw


def _set_by_path(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"command line: {key}: '{part}' is given both as a value and as a section")
    tree[name] = value


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _make_absolute(tree: dict[str, Any], base: Path) -> None:
    for *sections, name in _PATHS:
        values: Any = tree
        for section in sections:
            values = values.get(section) if isinstance(values, dict) else None
        value = values.get(name) if isinstance(values, dict) else None
        if isinstance(values, dict) and isinstance(value, str) and not value.startswith(HUB_PREFIX):
            values[name] = str((base / os.path.expanduser(value)).resolve())
