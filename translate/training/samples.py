"""Sample translations of a validation as heat maps, under samples/ and in TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from translate.decoding.aligner import align_translation
from translate.decoding.translator import Translation, Translator
from translate.figures.heatmap import pixels, save_heatmap

MOST_PICTURES = 60  # older ones are deleted: a long run validates a thousand times


def draw_samples(
    folder: Path, step: int, translator: Translator, sources: Sequence[str], found: Sequence[Translation], writer: Any
) -> None:
    """Draw the attention of each translation; skip empty translations and models without attention."""
    for number, (source, translation) in enumerate(zip(sources, found, strict=True), start=1):
        if translation.attention is None:
            return
        aligned = align_translation(translator, source, translation)
        if not aligned.target_words:
            continue
        path = folder / f"step-{step:08d}-{number}.png"
        save_heatmap(path, aligned.word_weights, [*aligned.source_words, "</s>"], aligned.target_words)
        if writer is not None:
            writer.add_image(f"samples/{number}", pixels(path), step, dataformats="HWC")
    for old in sorted(folder.glob("step-*.png"))[:-MOST_PICTURES]:
        old.unlink(missing_ok=True)
