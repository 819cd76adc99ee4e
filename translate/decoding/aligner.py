"""Translations with their word alignments: from attention over pieces to links between words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from translate.alignment.extract import Extraction, near_diagonal, shift_weights, word_weights
from translate.alignment.formats import FloatArray, Link, alignment_record
from translate.alignment.symmetrize import agreement, symmetrize, transposed
from translate.alignment.units import Span, Units, cut, span_units, word_units
from translate.decoding.heads import read_head
from translate.decoding.translator import Translation, Translator
from translate.errors import UserError
from translate.text.tokenizer import Tokenizer

SHIFTS = (0, 1, 2, -1)  # what `auto` tries; ties go to the first
MOST_HELD_OUT = 500  # pairs that `auto` uses

SpansOf = Callable[[str], Sequence[Span]]


@dataclass(frozen=True)
class AlignSettings:
    """What is linked, and how links are extracted."""

    extraction: Extraction = field(default_factory=Extraction)
    source_spans: bool = False
    """Units of the source are the characters that pieces cover, not words between spaces."""
    target_spans: bool = False
    pieces: bool = False
    """Link pieces too."""

    def for_reverse(self) -> AlignSettings:
        """The settings of the other direction."""
        return replace(self, source_spans=self.target_spans, target_spans=self.source_spans)


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence pair, piece by piece and word by word."""

    line: int
    source: str
    target: str
    source_words: list[str]
    target_words: list[str]
    source_spans: list[Span]
    target_spans: list[Span]
    source_pieces: list[str]
    target_pieces: list[str]
    weights: FloatArray  # (target pieces, source pieces), </s> included on both sides; as the model gave them
    word_weights: FloatArray  # (target words, source words + 1), after shift and prior; the last column is "no word"
    links: list[Link]
    probabilities: Mapping[Link, float]
    score: float
    possible: Collection[Link] = ()  # links that only one of two directions has
    reverse_word_weights: FloatArray | None = None  # (source words, target words + 1), of the other direction
    piece_links: list[Link] | None = None

    def record(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        return alignment_record(**vars(self))


def align(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    first_line: int = 1,
    settings: AlignSettings | None = None,
) -> list[AlignedSentence]:
    """Align sources with their own translations, or with the given ones."""
    translations = translations_of(translator, sources, targets, first_line)
    return align_translations(translator, sources, translations, targets, first_line, settings)


def translations_of(
    translator: Translator, sources: Sequence[str], targets: Sequence[str] | None, first_line: int = 1
) -> list[Translation]:
    """The translator's own translations, or given ones, with the weights of attention or of the alignment head."""
    check_attention(translator)
    if targets is None:
        return by_head(translator, [best[0] for best in translator.translate(sources, first_line=first_line)])
    return by_head(translator, translator.force(sources, targets, first_line=first_line))


def by_head(translator: Translator, translations: Sequence[Translation]) -> list[Translation]:
    """The translations with the weights of the translator's alignment head; unchanged if it has none."""
    if translator.head is None:
        return list(translations)
    return read_head(translator.model, translator.head, translations, translator.search.batch_tokens)


def check_attention(translator: Translator) -> None:
    """Refuse a run without attention."""
    if translator.model.decoder.attention is None:
        kind = translator.model.decoder.name
        raise UserError(f"This run's decoder is '{kind}': it has no attention, so there is nothing to align by.")


def align_translations(
    translator: Translator,
    sources: Sequence[str],
    translations: Sequence[Translation],
    targets: Sequence[str] | None = None,
    first_line: int = 1,
    settings: AlignSettings | None = None,
    others: tuple[SpansOf, SpansOf] | None = None,
) -> list[AlignedSentence]:
    """Align translations that were found (targets None) or given; `others` as in `align_translation`."""
    return [
        align_translation(
            translator, source, translation, None if targets is None else targets[i], first_line + i, settings, others
        )
        for i, (source, translation) in enumerate(zip(sources, translations, strict=True))
    ]


def align_translation(
    translator: Translator,
    source: str,
    translation: Translation,
    target: str | None = None,
    line: int = 1,
    settings: AlignSettings | None = None,
    others: tuple[SpansOf, SpansOf] | None = None,
) -> AlignedSentence:
    """Align one translation that was found (target None) or given.

    `others` give the pieces of a second pair of tokenizers, which units of characters must not cut either.
    """
    assert translation.attention is not None
    settings = settings or AlignSettings()
    extraction = settings.extraction
    other_src, other_tgt = others or (_no_spans, _no_spans)
    src = units_of_text(translator.source, source, len(translation.src_ids) - 1, settings.source_spans, other_src)
    if target is None:
        target, tgt = _units_of_ids(translator.target, translation.tgt_ids, settings.target_spans, other_tgt)
    else:
        tgt = units_of_text(translator.target, target, len(translation.tgt_ids) - 1, settings.target_spans, other_tgt)
    moved = shift_weights(translation.attention, extraction.shift)
    by_word = word_weights(moved, src.of_piece, tgt.of_piece, len(src.texts), len(tgt.texts))
    by_word = near_diagonal(by_word, extraction.diagonal)
    links = extraction.links(by_word)
    return AlignedSentence(
        line=line,
        source=source,
        target=target,
        source_words=src.texts,
        target_words=tgt.texts,
        source_spans=src.spans,
        target_spans=tgt.spans,
        source_pieces=translator.source.pieces(translation.src_ids),
        target_pieces=translator.target.pieces(translation.tgt_ids),
        weights=translation.attention,
        word_weights=by_word,
        links=links,
        probabilities={link: float(by_word[link.target, link.source]) for link in links},
        score=translation.score,
        piece_links=extraction.links(moved[:-1]) if settings.pieces else None,  # the last column is </s>
    )


def align_both(
    forward: Translator,
    backward: Translator,
    sources: Sequence[str],
    translations: Sequence[Translation],
    targets: Sequence[str] | None,
    method: str,
    first_line: int = 1,
    settings: AlignSettings | None = None,
) -> list[AlignedSentence]:
    """Align by two runs of opposite directions, and make one set of the links of both.

    A link of both directions is sure, one of either is possible; its probability is the mean of both weights.
    """
    settings = settings or AlignSettings()
    aligned = align_translations(
        forward, sources, translations, targets, first_line, settings, _spans_of_reverse(backward)
    )
    texts = [sentence.target for sentence in aligned]
    reverse = translations_of(backward, texts, sources, first_line)
    return [
        _joined(one, _by_reverse(backward, one, translation, settings), method)
        for one, translation in zip(aligned, reverse, strict=True)
    ]


def choose_shift(
    forward: Translator,
    backward: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    settings: AlignSettings,
) -> tuple[int, dict[int, float]]:
    """The shift with which both directions agree best on given pairs, and the agreement with every shift.

    Both directions get the same shift: shifts of k and -k would agree wherever both languages have the same order.
    """
    sources, targets = sources[:MOST_HELD_OUT], targets[:MOST_HELD_OUT]
    forced, reverse = translations_of(forward, sources, targets), translations_of(backward, targets, sources)
    found = {}
    for shift in SHIFTS:
        moved = replace(settings, extraction=replace(settings.extraction, shift=shift))
        one = align_translations(forward, sources, forced, targets, settings=moved, others=_spans_of_reverse(backward))
        other = [
            _by_reverse(backward, pair, translation, moved) for pair, translation in zip(one, reverse, strict=True)
        ]
        found[shift] = agreement(
            [sentence.links for sentence in one], [transposed(sentence.links) for sentence in other]
        )
    return max(SHIFTS, key=lambda shift: found[shift]), found


def _spans_of_reverse(backward: Translator) -> tuple[SpansOf, SpansOf]:
    """The spans of source and target pieces by the tokenizers of the reverse run."""
    return (
        lambda text: backward.target.encode_spans(text)[1],
        lambda text: backward.source.encode_spans(text)[1],
    )


def _by_reverse(
    backward: Translator, pair: AlignedSentence, translation: Translation, settings: AlignSettings
) -> AlignedSentence:
    """The same pair by the reverse run, in the same units."""
    spans: tuple[SpansOf, SpansOf] = (lambda _: pair.target_spans, lambda _: pair.source_spans)
    return align_translation(backward, pair.target, translation, pair.source, pair.line, settings.for_reverse(), spans)


def _joined(forward: AlignedSentence, backward: AlignedSentence, method: str) -> AlignedSentence:
    """One alignment from those of both directions; a line that was too long is cut to what both have read."""
    num_src = min(len(forward.source_words), len(backward.target_words))
    num_tgt = min(len(forward.target_words), len(backward.source_words))
    ours = {link for link in forward.links if link.source < num_src and link.target < num_tgt}
    theirs = {link for link in transposed(backward.links) if link.source < num_src and link.target < num_tgt}
    links = symmetrize(ours, theirs, method)
    columns, reverse_columns = [*range(num_src), -1], [*range(num_tgt), -1]
    by_word, by_reverse = (
        forward.word_weights[:num_tgt][:, columns],
        backward.word_weights[:num_src][:, reverse_columns],
    )
    return replace(
        forward,
        source_words=forward.source_words[:num_src],
        target_words=forward.target_words[:num_tgt],
        source_spans=forward.source_spans[:num_src],
        target_spans=forward.target_spans[:num_tgt],
        word_weights=by_word,
        reverse_word_weights=by_reverse,
        links=links,
        possible=set(links) - (ours & theirs),
        probabilities={
            link: float(by_word[link.target, link.source] + by_reverse[link.source, link.target]) / 2 for link in links
        },
    )


def units_of_pair(
    forward: Translator, backward: Translator, source: str, target: str, settings: AlignSettings
) -> tuple[tuple[Units, Units], tuple[Units, Units]]:
    """Source and target of a pair in units that neither run cuts: by the forward run's pieces, and by the other's."""
    sides = (
        (source, settings.source_spans, forward.source, backward.target),
        (target, settings.target_spans, forward.target, backward.source),
    )
    ours, theirs = [], []
    for text, spans, one, other in sides:
        mine = _all_units(one, text, spans, other)
        ours.append(mine)
        theirs.append(mine if one.model == other.model else _all_units(other, text, spans, one))
    return (ours[0], ours[1]), (theirs[0], theirs[1])


def _all_units(tokenizer: Tokenizer, text: str, spans: bool, other: Tokenizer) -> Units:
    return units_of_text(tokenizer, text, None, spans, lambda text: other.encode_spans(text)[1])


def _no_spans(_: str) -> Sequence[Span]:
    return ()


def units_of_text(tokenizer: Tokenizer, text: str, num_pieces: int | None, spans: bool, others: SpansOf) -> Units:
    """The units of a text, and the unit of each piece that was read; `</s>` is in none."""
    if spans:
        units = span_units(text, tokenizer.encode_spans(text)[1], others(text))
    else:
        units = word_units(text, tokenizer.encode_words(text)[1])
    if num_pieces is not None:
        units = cut(units, num_pieces)
    return replace(units, of_piece=[*units.of_piece, -1])


def _units_of_ids(tokenizer: Tokenizer, ids: Sequence[int], spans: bool, others: SpansOf) -> tuple[str, Units]:
    """The text of pieces that a search found, and its units."""
    if spans:
        text, places = tokenizer.decode_spans(ids)
        return text, span_units(text, places, others(text))
    text, of_piece = tokenizer.decode_words(ids)
    return text, word_units(text, of_piece)
