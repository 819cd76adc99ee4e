"""Finds the installed fonts that can draw a text; matplotlib itself only tries the fonts it is given."""

from __future__ import annotations

import logging
import unicodedata
from functools import cache

from matplotlib import font_manager

DEFAULT_FAMILY = "DejaVu Sans"  # comes with matplotlib
PREFERRED = ("Noto Sans", "Source Han Sans", "Noto", "DejaVu")  # starts of names, best first; then the others by name
LAST_RESORT = "Last Resort"  # has a box for every character
REGULAR = (400, "normal", "regular", "book")  # matplotlib warns about other weights
CJK_NAMES = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")

logger = logging.getLogger(__name__)


def families_for(text: str) -> tuple[list[str], set[str]]:
    """Find font families that can draw a text together, and the characters that no installed font has."""
    families = [DEFAULT_FAMILY]
    missing = _not_in(DEFAULT_FAMILY, set(text))
    if missing:
        _add_new_fonts()
    for family in _other_families():
        if not missing:
            break
        left = _not_in(family, missing)
        if left != missing:
            families.append(family)
        missing = left
    return families, missing


def warn_missing(characters: set[str]) -> None:
    """Name the packages whose fonts have the characters, each package once."""
    for package in sorted({_package(char) for char in characters}):
        _warn_once(package)


def _other_families() -> list[str]:
    """List the installed families that may stand in for the default one, best first."""
    fonts = font_manager.fontManager.ttflist
    names = {font.name for font in fonts if font.style == "normal" and font.weight in REGULAR}
    names = {name for name in names if name != DEFAULT_FAMILY and not name.startswith(LAST_RESORT)}
    return sorted(names, key=lambda name: (_preference(name), name))


def _preference(family: str) -> int:
    """Rank a family by the first preferred start of its name."""
    return next((rank for rank, start in enumerate(PREFERRED) if family.startswith(start)), len(PREFERRED))


def _not_in(family: str, characters: set[str]) -> set[str]:
    """Give the characters that a family has no glyph for."""
    try:
        font = font_manager.get_font(font_manager.findfont(family, fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):  # a damaged or deleted font file has no glyphs
        return characters
    return {char for char in characters if not font.get_char_index(ord(char))}


@cache
def _add_new_fonts() -> None:
    """Add fonts that were installed after matplotlib wrote its list, for example on our own advice."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            font_manager.fontManager.addfont(path)
        except Exception as error:  # fonts fail in many ways; matplotlib ignores them too
            logger.debug("font %s: %s", path, error)


def _package(char: str) -> str:
    """Name a Debian package with a font that has the character."""
    if unicodedata.name(char, "").startswith(CJK_NAMES):
        return "fonts-noto-cjk"
    if unicodedata.category(char) in ("So", "Sk"):
        return "fonts-symbola"  # emoji: matplotlib cannot draw the coloured ones
    return "fonts-noto-core"


@cache
def _warn_once(package: str) -> None:
    """Say once in a process that a font is missing."""
    logger.warning("Some characters are drawn as boxes: no installed font has them. Install the package %s.", package)
