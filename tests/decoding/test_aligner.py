"""From translations to links between words, by one run, by two, and by the shift on which two agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.small_runs import SOURCE_LINES, TARGET_LINES, random_translator, reverse_translator
from translate.alignment.extract import Extraction
from translate.alignment.formats import Link
from translate.alignment.symmetrize import symmetrize, transposed
from translate.decoding import aligner
from translate.decoding.aligner import (
    AlignSettings,
    align,
    align_both,
    align_translation,
    align_translations,
    choose_shift,
    translations_of,
    units_of_pair,
)
from translate.decoding.heads import read_head
from translate.decoding.translator import Translation, Translator
from translate.errors import UserError
from translate.models.alignment_head import AlignmentHead, HeadSizes
from translate.text.tokenizer import EOS

WEIGHTS = np.array(
    [
        [0.1, 0.2, 0.6, 0.1],  # le: dog
        [0.4, 0.35, 0.05, 0.2],  # petit: the, and nearly small
        [0.1, 0.1, 0.2, 0.6],  # chien: nothing
        [0.0, 0.9, 0.0, 0.1],  # </s>
    ],
    dtype=np.float32,
)


def given(translator: Translator, source: str, target: str, weights: Any) -> Translation:
    """A translation with weights of our own."""
    src, tgt = (*translator.source.encode(source), EOS), (*translator.target.encode(target), EOS)
    return Translation(target, -1.5, -3.0, src, tgt, np.asarray(weights, np.float32))


def test_words_are_linked_by_their_weights() -> None:
    translator = random_translator()
    found = given(translator, "the small dog", "le petit chien", WEIGHTS)
    for target in ("le petit chien", None):
        one = align_translation(translator, "the small dog", found, target, line=7)
        assert (one.line, one.source, one.target, one.score) == (7, "the small dog", "le petit chien", -1.5)
        assert (one.source_words, one.target_words) == (["the", "small", "dog"], ["le", "petit", "chien"])
        assert one.source_spans == [(0, 3), (4, 9), (10, 13)]
        assert one.source_pieces == ["▁the", "▁small", "▁dog", "</s>"]
        assert one.links == [Link(2, 0), Link(0, 1)]
        assert one.probabilities == {Link(2, 0): pytest.approx(0.6), Link(0, 1): pytest.approx(0.4)}
        np.testing.assert_allclose(one.word_weights, WEIGHTS[:3], atol=1e-6)
        assert one.piece_links is None
        assert one.record()["links"] == [[0, 1], [2, 0]]


def test_the_settings_decide_how_links_are_read() -> None:
    translator = random_translator()
    found = given(translator, "the small dog", "le petit chien", WEIGHTS)

    def links(**extraction: Any) -> set[tuple[int, int]]:
        settings = AlignSettings(Extraction(**extraction), pieces=True)
        one = align_translation(translator, "the small dog", found, settings=settings)
        assert one.piece_links is not None
        assert set(one.piece_links) == set(one.links), "here a word is a piece"
        return set(one.links)

    assert links(method="threshold", threshold=0.3) == {(2, 0), (0, 1), (1, 1)}
    assert links(shift=1) == {(0, 0), (1, 2)}
    before = align_translation(translator, "the small dog", found).word_weights
    near = AlignSettings(Extraction(diagonal=9.0))
    assert align_translation(translator, "the small dog", found, settings=near).word_weights[0, 0] > before[0, 0]


def test_lines_are_numbered_and_own_translations_aligned() -> None:
    translator = random_translator()
    found = align(translator, SOURCE_LINES, first_line=4)
    best = [several[0] for several in translator.translate(SOURCE_LINES)]
    assert [one.line for one in found] == [4, 5, 6]
    assert [one.target for one in found] == [one.text for one in best]
    forced = align(translator, SOURCE_LINES, TARGET_LINES, first_line=4)
    assert [(one.line, one.target) for one in forced] == list(zip([4, 5, 6], TARGET_LINES, strict=True))
    for one, translation in zip(forced, translator.force(SOURCE_LINES, TARGET_LINES), strict=True):
        np.testing.assert_allclose(one.weights, translation.attention, atol=1e-6)


def test_a_head_takes_the_place_of_attention() -> None:
    translator = random_translator()
    torch.manual_seed(2)
    translator.head = AlignmentHead(HeadSizes.of(translator.model, 5)).double().eval()
    plain = translator.force(SOURCE_LINES, TARGET_LINES)
    wanted = read_head(translator.model, translator.head, plain, 4000)
    for one, other in zip(translations_of(translator, SOURCE_LINES, TARGET_LINES), wanted, strict=True):
        assert one.attention is not None
        assert other.attention is not None
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-9)
    assert not np.allclose(plain[0].attention, wanted[0].attention), "the head says something else"


def test_a_run_without_attention_is_refused() -> None:
    with pytest.raises(UserError, match="'plain': it has no attention"):
        align(random_translator("plain"), SOURCE_LINES)


@pytest.mark.parametrize("method", ["intersect", "union", "grow-diag"])
def test_two_directions_make_one_set_of_links(method: str) -> None:
    forward, backward = random_translator(), reverse_translator()
    settings = AlignSettings(Extraction("threshold", threshold=0.15))
    translations = translations_of(forward, SOURCE_LINES, TARGET_LINES)
    both = align_both(forward, backward, SOURCE_LINES, translations, TARGET_LINES, method, 3, settings)
    ours = align(forward, SOURCE_LINES, TARGET_LINES, settings=settings)
    theirs = align(backward, TARGET_LINES, SOURCE_LINES, settings=settings)
    possible = 0
    for number, (joined, one, other) in enumerate(zip(both, ours, theirs, strict=True), start=3):
        here, there = set(one.links), set(transposed(other.links))
        assert (joined.line, joined.source, joined.target) == (number, one.source, one.target)
        assert joined.links == symmetrize(here, there, method)
        assert set(joined.possible) == set(joined.links) - (here & there)
        assert joined.reverse_word_weights is not None
        np.testing.assert_allclose(joined.word_weights, one.word_weights)
        np.testing.assert_allclose(joined.reverse_word_weights, other.word_weights)
        for link in joined.links:
            mean = (one.word_weights[link.target, link.source] + other.word_weights[link.source, link.target]) / 2
            assert joined.probabilities[link] == pytest.approx(mean)
        possible += len(joined.possible)
    assert (possible > 0) == (method != "intersect")


def test_of_a_long_line_the_part_that_both_runs_read_is_aligned() -> None:
    forward, backward = random_translator(), reverse_translator(max_source=3)
    settings = AlignSettings(Extraction("threshold", threshold=0.0))
    source, target = "the small dog sleeps", "un homme voit la maison"
    translations = translations_of(forward, [source], [target])
    with pytest.warns(UserWarning, match="after the first 3"):
        (one,) = align_both(forward, backward, [source], translations, [target], "union", settings=settings)
    assert (one.source_words, one.target_words) == (["the", "small", "dog"], ["un", "homme", "voit"])
    assert (one.source_spans, one.target_spans) == ([(0, 3), (4, 9), (10, 13)], [(0, 2), (3, 8), (9, 13)])
    assert one.word_weights.shape == (3, 4)
    assert one.reverse_word_weights is not None
    assert one.reverse_word_weights.shape == (3, 4)
    assert set(one.links) == {(src, tgt) for src in range(3) for tgt in range(3)}
    (whole,) = align(forward, [source], [target])
    np.testing.assert_allclose(one.word_weights[:, -1], whole.word_weights[:3, -1], atol=1e-6)


def shifted_weights(num_tgt: int, num_src: int, shift: int) -> Any:
    """Step t + shift looks at word t."""
    weights = np.zeros((num_tgt + 1, num_src + 1))
    for step in range(num_tgt + 1):
        place = step - shift
        weights[step, place if 0 <= place < num_src else num_src] = 1.0
    return weights


@pytest.mark.parametrize("shift", [0, 1, 2, -1])
def test_the_shift_is_the_one_on_which_both_directions_agree(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, backward = random_translator(), reverse_translator()
    sources, targets = ["the small dog sleeps"] * 4, ["un homme voit maison"] * 4
    asked = []

    def made(translator: Translator, lines: Sequence[str], others: Sequence[str], *_: Any) -> list[Translation]:
        asked.append(len(lines))
        return [
            given(translator, line, other, shifted_weights(4, 4, shift))
            for line, other in zip(lines, others, strict=True)
        ]

    monkeypatch.setattr(aligner, "translations_of", made)
    monkeypatch.setattr(aligner, "MOST_HELD_OUT", 3)
    chosen, agreements = choose_shift(forward, backward, sources, targets, AlignSettings())
    assert chosen == shift
    assert agreements[shift] >= 0.75, "the ends have no step of their own"
    assert all(value < agreements[shift] for other, value in agreements.items() if other != shift)
    assert set(agreements) == {0, 1, 2, -1}
    assert asked == [3, 3]


def test_of_equal_shifts_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligner, "agreement", lambda *_: 0.5)
    found = choose_shift(random_translator(), reverse_translator(), SOURCE_LINES, TARGET_LINES, AlignSettings())
    assert found == (0, dict.fromkeys((0, 1, 2, -1), 0.5))


def test_units_of_a_pair_are_those_that_neither_run_cuts() -> None:
    forward, backward = random_translator(), reverse_translator()
    ours, theirs = units_of_pair(forward, backward, "the small dog", "le chien", AlignSettings())
    assert ours == theirs
    assert [side.texts for side in ours] == [["the", "small", "dog"], ["le", "chien"]]
    assert [side.of_piece for side in ours] == [[0, 1, 2, -1], [0, 1, -1]]


def test_the_reverse_direction_has_the_sides_exchanged() -> None:
    settings = AlignSettings(Extraction(shift=1), source_spans=True, pieces=True)
    back = settings.for_reverse()
    assert (back.source_spans, back.target_spans, back.pieces) == (False, True, True)
    assert back.extraction == settings.extraction
    assert back.for_reverse() == settings


def test_every_translation_is_aligned_with_its_line() -> None:
    translator = random_translator()
    with pytest.raises(ValueError):
        align_translations(translator, SOURCE_LINES, translator.force(SOURCE_LINES[:2], TARGET_LINES[:2]))
