"""Translations with their word alignments: the bridge from attention over pieces to links between words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from translate.alignment.extract import argmax_links, word_weights
from translate.alignment.formats import FloatArray, Link, alignment_record
from translate.decoding.translator import Translation, Translator
from translate.errors import UserError
from translate.text.tokenizer import Tokenizer


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
    source_words, src_words = _cut(translator.source, source, len(translation.src_ids) - 1)
    if target is None:
        target, tgt_words = translation.text, translator.target.decode_words(translation.tgt_ids)[1]
        target_words = _words(target)
    else:
        target_words, tgt_words = _cut(translator.target, target, len(translation.tgt_ids) - 1)
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


def _cut(tokenizer: Tokenizer, text: str, num_pieces: int) -> tuple[list[str], list[int]]:
    """The words of a text and the word of each of its first pieces and of `</s>`, which is in none.

    Of a line that was too long, only words up to the last piece that was read count: a matrix of all would be huge.
    """
    words, places = _words(text), tokenizer.encode_words(text)[1]
    if num_pieces < len(places):
        words = words[: max(places[:num_pieces], default=-1) + 1]
    return words, [*places[:num_pieces], -1]


def _words(text: str) -> list[str]:
    return [word for word in text.split(" ") if word]
