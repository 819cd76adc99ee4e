"""Any text becomes a label that can be seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from translate.figures.labels import label, shorten, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Haus", "Haus"),
        ("▁the", "▁the"),
        ("$_$ \\alpha <script> [/red]", "$_$ \\alpha <script> [/red]"),
        ("\x1b[31m", "<U+001B>[31m"),
        ("a\nb\0", "a<U+000A>b<U+0000>"),
        ("\u202eabc", "<U+202E>abc"),
        ("\u2028\x85\xa0", "<U+2028><U+0085><U+00A0>"),
        ("\ud800", "<U+D800>"),
        ("\ufffe", "<U+FFFE>"),
        ("", "∅"),
        ("  ", "␣␣"),
        ("\u0301a", "◌\u0301a"),
        ("می‌خواهم", "می‌خواهم"),
        ("👨‍👩‍👧", "👨‍👩‍👧"),
        ("e" + "\u0301" * 5, "e" + "\u0301" * 4 + "<U+0301>"),
    ],
)
def test_every_character_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(codec=None)), st.integers(2, 30))
def test_a_label_is_one_line_that_fits(text: str, cells: int) -> None:
    shown = label(text, cells)
    assert 1 <= cell_len(shown) <= cells
    assert all(char.isprintable() or char in "\u200c\u200d" for char in shown)
    assert len(shown) <= 4 * cells + 1
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "cells", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
    ],
)
def test_a_cut_is_marked(text: str, cells: int, short: str) -> None:
    assert shorten(text, cells) == short


def test_a_very_long_token_is_not_walked_through() -> None:
    assert label("x" * 10_000_000, 8) == "xxxxxxx…"
