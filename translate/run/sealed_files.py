"""Files and directories that are written whole or not at all.

A sealed directory is written under a temporary name, synced, and renamed; MANIFEST.json, written last, holds the
SHA-256 of every file. A directory that does not match its manifest is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from translate.errors import RunError

MANIFEST = "MANIFEST.json"
TEMPORARY = ".tmp-"
OLD = f"{TEMPORARY}old-"  # an old directory while a new one replaces it


def damage_of(path: Path, names: set[str]) -> str | None:
    """What is wrong with a directory that must hold these files and a manifest of them, or None."""
    try:
        digests = json.loads((path / MANIFEST).read_text())["sha256"]
        if set(digests) != names:
            *most, last = sorted(names)
            return f"{MANIFEST} does not name {', '.join(most)} and {last}"
        for name, digest in digests.items():
            content = (path / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                return f"{name} does not match its SHA-256 in {MANIFEST}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"{MANIFEST} is not readable: {error}"
    return None


def write_sealed(final: Path, files: Mapping[str, bytes]) -> None:
    """Write a directory of files with their manifest, whole or not at all; replaces an old one."""
    folder, name = final.parent, final.name
    temporary, aside = folder / f"{TEMPORARY}{name}", folder / f"{OLD}{name}"
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    contents = {**files, MANIFEST: json.dumps({"format": 1, "sha256": digests}, indent=1).encode()}
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for file, content in contents.items():
            _write_synced(temporary / file, content)
        damage = damage_of(temporary, set(files))
        if damage is not None:
            raise RunError(f"{temporary}: the files read back differ from what was written: {damage}. Check the disk.")
        _sync_directory(temporary)
        if final.exists():  # moved, not removed, so that the time without either is short
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        temporary.rename(final)
        shutil.rmtree(aside, ignore_errors=True)
        _sync_directory(folder)
    except OSError as error:
        needed = sum(map(len, contents.values()))
        raise RunError(f"{final}: writing {needed:,} bytes failed: {error.strerror}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace a small file by one rename."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        _write_synced(temporary, content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path}: writing {len(content):,} bytes failed: {error.strerror}.") from error


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; on a full disk, half of it may be written."""
    content = f"{line}\n".encode()
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise RunError(f"{path}: writing {len(content):,} bytes failed: {error.strerror}.") from error


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
