"""Tokens as labels: any text becomes one short line of visible characters."""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, set_cell_size

EMPTY = "∅"
SPACE = "␣"
ELLIPSIS = "…"
DOTTED_CIRCLE = "◌"  # Unicode's base for a combining mark without a letter
JOINERS = "\u200c\u200d"  # Persian spelling and composed emoji need them
MAX_ATTACHED = 4  # marks on a letter: languages need two or three, and many of them would cover other labels
MAX_CODES_PER_CELL = 4


def visible(text: str) -> str:
    """Show every character: controls, odd spaces and direction marks as `<U+001B>`, empty text as `∅`."""
    if not text.strip(" "):
        return SPACE * len(text) or EMPTY
    shown = DOTTED_CIRCLE if _attaches(text[0]) else ""
    num_attached = 0
    for char in text:
        num_attached = num_attached + 1 if _attaches(char) else 0
        kept = (char.isprintable() or char in JOINERS) and num_attached <= MAX_ATTACHED
        shown += char if kept else f"<U+{ord(char):04X}>"
    return shown


def shorten(text: str, cells: int) -> str:
    """Cut text to a number of terminal cells and mark the cut by `…`; also bounds marks without width."""
    start = text[: MAX_CODES_PER_CELL * cells]
    if start == text and cell_len(text) <= cells:
        return text
    return set_cell_size(start, cells - 1).rstrip(" ") + ELLIPSIS


def label(text: str, cells: int) -> str:
    """Make a token visible in at most `cells` terminal cells."""
    # Cut before and after, so that a token of a million characters takes no time.
    return shorten(visible(text[: MAX_CODES_PER_CELL * cells + 1]), cells)


def _attaches(char: str) -> bool:
    """Tell whether a character is drawn onto the one before it or joins it to the next."""
    return char in JOINERS or unicodedata.category(char).startswith("M")
