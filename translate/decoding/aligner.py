"""Translations with their word alignments: the bridge from attention over pieces to links between words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from translate.alignment.extract import argmax_links, word_weights
from translate.alignment.formats import FloatArray, Link, alignment_record
from translate.decoding.translator import Translation, Translator
from translate.errors import UserError


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence pair, piece by piece and word by word."""

    line: int
    source: str
    target: str
    source_words: list[str]
    target_words: list[str]
    source_pieces: list[str]
    target_pieces: list[str]
    weights: FloatArray  # (target pieces, source pieces), </s> included on both sides
    word_weights: FloatArray  # (target words, source words + 1); the last column is the weight on no word
    links: list[Link]

    def record(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        return alignment_record(**vars(self))


def align(
    translator: Translator, sources: Sequence[str], targets: Sequence[str] | None = None, first_line: int = 1
) -> list[AlignedSentence]:
    """Align sources with their own translations, or with the given ones."""
    if translator.model.decoder.attention is None:
        raise UserError("This run's decoder is 'plain': it has no attention, so there is nothing to align by.")
    if targets is None:
        translations = [best[0] for best in translator.translate(sources, first_line=first_line)]
    else:
        translations = translator.force(sources, targets, first_line=first_line)
    return [
        align_translation(translator, source, translation, targets[i] if targets is not None else None, first_line + i)
        for i, (source, translation) in enumerate(zip(sources, translations, strict=True))
    ]


def align_translation(
    translator: Translator, source: str, translation: Translation, target: str | None = None, line: int = 1
) -> AlignedSentence:
    """Align one translation that was found (target None) or given."""
    assert translation.attention is not None
    src_words = [*translator.source.encode_words(source)[1][: len(translation.src_ids) - 1], -1]
    if target is None:
        target, tgt_words = translator.target.decode_words(translation.tgt_ids)
    else:
        tgt_words = [*translator.target.encode_words(target)[1][: len(translation.tgt_ids) - 1], -1]
    source_words, target_words = _words(source), _words(target)
    by_word = word_weights(translation.attention, src_words, tgt_words, len(source_words), len(target_words))
    return AlignedSentence(
        line=line,
        source=source,
        target=target,
        source_words=source_words,
        target_words=target_words,
        source_pieces=translator.source.pieces(translation.src_ids),
        target_pieces=translator.target.pieces(translation.tgt_ids),
        weights=translation.attention,
        word_weights=by_word,
        links=argmax_links(by_word),
    )


def _words(text: str) -> list[str]:
    return [word for word in text.split(" ") if word]
