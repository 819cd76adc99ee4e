"""The demo corpus and its settings, which come with the program."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

# Here links to data/demo and configs/demo.toml, in a wheel the files themselves.
_CORPUS, _SETTINGS = "demo", "demo.toml"
_SPLITS, _ENDINGS = ("train", "valid", "test"), ("en", "fr", "align")


def demo_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of the corpus."""
    for split in _SPLITS:
        for ending in _ENDINGS:
            name = f"{split}.{ending}"
            yield name, (files(__package__) / _CORPUS / name).read_bytes()


def demo_settings() -> dict[str, dict[str, Any]]:
    """The settings of configs/demo.toml as they stand there, paths included."""
    return tomllib.loads((files(__package__) / _SETTINGS).read_text(encoding="utf-8"))
