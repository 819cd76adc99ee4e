"""A cache of translations and their attention in the run, so that nothing is decoded twice.

Each file under translations/kept/ is named by a hash of everything that it depends on: the checkpoint's weights, the
tokenizers, the search settings and the sentences.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from translate.alignment.formats import DAMAGED_NPZ
from translate.decoding.translator import Translation, Translator
from translate.errors import RunError
from translate.models.plugins import plugins_of
from translate.run.checkpoint import MODEL
from translate.run.directory import Run
from translate.run.sealed_files import MANIFEST, write_file

FORMAT = 1  # raise it when the same key would mean other translations
MOST_LINES = 20_000  # larger inputs are not cached: their attention would fill the disk
MOST_FILES = 16  # the oldest are deleted first


@dataclass(frozen=True)
class CachedTranslations:
    """Translations, the seconds it took to find them, and whether they come from the cache."""

    translations: list[Translation]
    seconds: float
    before: bool


def translate_cached(
    run: Path, translator: Translator, sources: Sequence[str], fresh: bool = False, first_line: int = 1
) -> CachedTranslations:
    """The best translation of each line: from the run's cache, or a new one that is then cached."""
    path = None
    if len(sources) <= MOST_LINES:
        path = run / "translations" / "kept" / f"{_key(Run.open(run), translator, sources, first_line)}.npz"
        kept = None if fresh else _read(path, len(sources))
        if kept is not None:
            return kept
    start = time.perf_counter()
    translations = [best[0] for best in translator.translate(sources, first_line=first_line)]
    found = CachedTranslations(translations, time.perf_counter() - start, before=False)
    if path is not None:
        try:
            _write(path, found)
        except (RunError, OSError) as error:  # a read-only run can be used all the same
            warnings.warn(f"the translations are not kept: {error}", stacklevel=2)
    return found


def _key(run: Run, translator: Translator, sources: Sequence[str], first_line: int) -> str:
    """A hash of everything that the translations depend on."""
    manifest = json.loads((run.best().path / MANIFEST).read_text())
    plugins = [plugin.sha256 for plugin in plugins_of(run.config().model.members)]
    parts = {
        "format": FORMAT,
        "model": manifest["sha256"][MODEL],
        "config": hashlib.sha256((run.path / "config.toml").read_bytes()).hexdigest(),
        "tokenizers": [hashlib.sha256(side.model).hexdigest() for side in (translator.source, translator.target)],
        "search": translator.search.model_dump(mode="json"),
        "device": translator.device.type,
        "source": hashlib.sha256("\n".join(sources).encode()).hexdigest(),
        "lines": len(sources),
        **({"plugins": plugins} if plugins else {}),
        **({"first_line": first_line} if translator.search.sample else {}),  # draws depend on the line's number
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _write(path: Path, found: CachedTranslations) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    matrices = [translation.attention for translation in found.translations if translation.attention is not None]
    about: dict[str, Any] = {
        "seconds": found.seconds,
        "attention": len(matrices) == len(found.translations),
        "translations": [
            [item.text, item.score, item.log_prob, item.src_ids, item.tgt_ids] for item in found.translations
        ],
    }
    text = np.frombuffer(json.dumps(about, ensure_ascii=False).encode(), np.uint8)
    weights = np.concatenate([matrix.astype(np.float32).ravel() for matrix in matrices] or [np.zeros(0, np.float32)])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=text, weights=weights)
    write_file(path, buffer.getvalue())
    files = sorted(path.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime)
    for old in files[:-MOST_FILES]:
        old.unlink(missing_ok=True)


def _read(path: Path, count: int) -> CachedTranslations | None:
    """The cached translations of this name; None if there is no file or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes().decode())
            weights = np.asarray(arrays["weights"], np.float32)
        translations, at = [], 0
        for text, score, log_prob, src_ids, tgt_ids in about["translations"]:
            attention = None
            if about["attention"]:
                size = len(tgt_ids) * len(src_ids)
                attention = weights[at : at + size].reshape(len(tgt_ids), len(src_ids))
                at += size
            translations.append(Translation(text, score, log_prob, tuple(src_ids), tuple(tgt_ids), attention))
        if at != len(weights) or len(translations) != count:
            return None
        return CachedTranslations(translations, float(about["seconds"]), before=True)
    except DAMAGED_NPZ:
        return None
