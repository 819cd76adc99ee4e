"""What is linked: words between ASCII spaces, or the characters that pieces cover."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.alignment.units import Units, cut, span_units, without_spaces, words
from translate.config import TokenizerConfig
from translate.text.corpus import tidy
from translate.text.tokenizer import EOS, Tokenizer, train_tokenizer

TEXT = ["我们 喜欢 苹果", "我们喜欢吃苹果和香蕉", "the man likes apples", "wir mögen äpfel", "🙂 ok"] * 4


@pytest.fixture(scope="module", params=["unigram", "bpe", "char", "word"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    config = TokenizerConfig(kind=request.param, vocabulary=330)
    return Tokenizer(train_tokenizer(TEXT, config, 1, lambda _: None))


def test_words_end_at_ascii_spaces_only() -> None:
    text = "a\u3000b  c\u00a0d \u2028 e"
    assert words(text) == (["a\u3000b", "c\u00a0d", "\u2028", "e"], [(0, 3), (5, 8), (9, 10), (11, 12)])
    assert words("\u3000") == (["\u3000"], [(0, 1)])
    assert words("  ") == ([], [])


@pytest.mark.parametrize(("language", "unspaced"), [("zh", True), ("zh-Hant", True), ("ja_JP", True), ("TH", True)])
def test_languages_without_spaces(language: str, unspaced: bool) -> None:
    assert without_spaces(language) is unspaced
    assert not any(without_spaces(other) for other in ("en", "fr", "ko", "de", "src", "hi", "zha"))


def test_pieces_that_share_a_character_are_one_unit() -> None:
    units = span_units("ab cd", [(0, 1), (0, 1), (1, 2), (2, 2), (3, 5)])
    assert units == Units(["a", "b", "cd"], [(0, 1), (1, 2), (3, 5)], [0, 0, 1, -1, 2])
    # A second tokenizer's piece lies across both letters, so neither may be parted.
    assert span_units("ab cd", [(0, 1), (1, 2), (3, 5)], [(0, 2), (3, 4)]) == Units(
        ["ab", "cd"], [(0, 2), (3, 5)], [0, 0, 1]
    )


def test_a_line_that_was_cut_has_the_words_that_were_read() -> None:
    units = Units(["a", "b", "c"], [(0, 1), (2, 3), (4, 5)], [0, 0, 1, 2, 2])
    assert cut(units, 3) == Units(["a", "b"], [(0, 1), (2, 3)], [0, 0, 1])
    assert cut(units, 0) == Units([], [], [])
    assert cut(units, 5) is units


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("我们喜欢苹果 thé mn🙂\u3000\u00a0\u2028龘"), max_size=12))
def test_spans_cover_what_pieces_spell(tokenizer: Tokenizer, text: str) -> None:
    ids, spans = tokenizer.encode_spans(text)
    assert ids == tokenizer.encode(text)
    assert len(spans) == len(ids)
    covered = {place for begin, end in spans for place in range(begin, end)}
    clean = tidy(text)
    assert covered <= set(range(len(text)))
    # Every visible character is in some piece, whatever the pieces are.
    missed = {place for place, char in enumerate(clean) if char != " "} - covered
    assert all(clean[place].isspace() for place in missed)
    # What was decoded is covered in the same order, and the end of the sentence covers nothing.
    decoded, places = tokenizer.decode_spans([*ids, EOS])
    assert decoded == tokenizer.decode([*ids, EOS])
    assert places[-1] == (0, 0)
    real = [span for span in places if span[0] < span[1]]
    assert real == sorted(real)
    assert {place for begin, end in real for place in range(begin, end)} >= {
        place for place, char in enumerate(decoded) if char != " "
    }


def test_chinese_is_linked_by_characters() -> None:
    tokenizer = Tokenizer(train_tokenizer(TEXT, TokenizerConfig(kind="char", vocabulary=330), 1, lambda _: None))
    text = "我们龘"  # the last one is spelt as bytes
    units = span_units(text, tokenizer.encode_spans(text)[1])
    assert (units.texts, units.spans) == (["我", "们", "龘"], [(0, 1), (1, 2), (2, 3)])
