"""What is wrong with a pair, and which pairs are used. Pairs are judged as pairs, so the sides never shift.

`why_left_out` judges pieces, for training; `faults_of` judges text, for `translate data check` and `data clean`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from translate.config import DataConfig
from translate.defaults import MAX_RATIO, MAX_WORDS
from translate.text.corpus import Pair, has_breaks, tidy

Reason = Literal["empty side", "too long", "length ratio"]
Fault = Literal[
    "empty side",
    "no letters",
    "too long",
    "length ratio",
    "identical sides",
    "wrong script",
    "mojibake",
    "duplicate",
    "held out",
    "control characters",
]

# In the order of their checks: a pair is left out for the first that matches.
FAULTS: dict[Fault, str] = {
    "empty side": "a side without visible characters",
    "no letters": "a side without a letter or digit, where the other has one",
    "too long": "a side of too many words",
    "length ratio": "one side much longer than the other, by the corpus's own ratio",
    "identical sides": "the same words on both sides",
    "wrong script": "a side mostly in letters that are rare on that side of the corpus",
    "mojibake": "UTF-8 that was decoded as another encoding, or the replacement character U+FFFD",
    "duplicate": "a pair that occurred before",
    "held out": "a source sentence that is also in validation or test",
    "control characters": "control characters, tabs or line separators inside a line; `clean` replaces them by spaces",
}
REPAIRED: tuple[Fault, ...] = ("control characters",)
"""What `clean` repairs instead of leaving the pair out."""


@dataclass
class FilterReport:
    """How many pairs were read, how many kept, and why the others were not."""

    max_length: int
    max_ratio: float
    total: int = 0
    kept: int = 0
    left_out: dict[Reason, int] = field(default_factory=lambda: {"empty side": 0, "too long": 0, "length ratio": 0})

    def add(self, reason: Reason | None, num_pairs: int = 1) -> None:
        """Count pairs that are left out for this reason, or kept if there is none."""
        self.total += num_pairs
        if reason is None:
            self.kept += num_pairs
        else:
            self.left_out[reason] += num_pairs

    def __str__(self) -> str:
        explained: dict[Reason, str] = {
            "empty side": "with an empty side",
            "too long": f"longer than {self.max_length:,} pieces",
            "length ratio": f"with one side more than {self.max_ratio:g} times as long as the other",
        }
        reasons = [f"{count:,} {explained[reason]}" for reason, count in self.left_out.items() if count]
        left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
        return f"{self.total:,} {'pair' if self.total == 1 else 'pairs'} read, {self.kept:,} kept{left_out}"


def why_left_out(num_src: int, num_tgt: int, data: DataConfig) -> Reason | None:
    """Why a pair with these numbers of pieces is left out of training, or None if it is not."""
    return judge_lengths(num_src, num_tgt, data.max_length, data.max_ratio)


def judge_lengths(num_src: float, num_tgt: float, max_length: float, max_ratio: float) -> Reason | None:
    """What is wrong with a pair of these lengths, in any unit; 0 means no limit."""
    shorter, longer = sorted((num_src, num_tgt))
    if shorter == 0:
        return "empty side"
    if max_length and longer > max_length:
        return "too long"
    if max_ratio and longer > max_ratio * shorter:
        return "length ratio"
    return None


@dataclass(frozen=True)
class Norms:
    """Limits, and a corpus's usual ratio and scripts, by which its pairs are judged."""

    max_words: int = MAX_WORDS
    max_ratio: float = MAX_RATIO
    """0 means no limit, here and above."""
    scale: float = 1.0
    """Target characters for each source character, by the median."""
    scripts: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """The writing systems of each side; empty means any."""


# A short sentence is often half as long as its translation, so a constant is added to all lengths.
_GRACE = 10.0
_FEWEST_LETTERS = 3  # fewer do not determine a line's script
_MOST_FOREIGN = 0.8  # of a line's letters: "我用Twitter" is still Chinese


def faults_of(pair: Pair, norms: Norms) -> list[Fault]:
    """Everything that is wrong with a pair by itself, in the order of FAULTS."""
    clean = Pair(*(_squeezed(side) for side in pair))
    found: list[Fault] = []
    wrong = judge_lengths(num_words(clean.source), num_words(clean.target), norms.max_words, max_ratio=0)
    if wrong is not None:
        found.append(wrong)
    if not found:
        spelt = [any(map(str.isalnum, side)) for side in clean]
        if spelt[0] != spelt[1]:
            found.append("no letters")
        if judge_lengths(*comparable(clean, norms.scale), 0, norms.max_ratio):
            found.append("length ratio")
        if clean.source.casefold() == clean.target.casefold() and any(map(str.isalpha, clean.source)):
            found.append("identical sides")
    if any(_is_foreign(side, scripts) for side, scripts in zip(clean, norms.scripts, strict=True)):
        found.append("wrong script")
    if any(map(has_mojibake, pair)):
        found.append("mojibake")
    if any(map(has_breaks, pair)):
        found.append("control characters")
    return found


def pair_key(pair: Pair) -> int:
    """A number that is equal for pairs that differ only in spaces and control characters, within this process."""
    return hash(tuple(map(_squeezed, pair)))


def source_key(line: str) -> int:
    """The same for a source sentence alone."""
    return hash(_squeezed(line))


def comparable(pair: Pair, scale: float) -> tuple[float, float]:
    """The sides' lengths in source characters, plus the constant that makes short sentences comparable."""
    return len(pair.source) + _GRACE, len(pair.target) / scale + _GRACE


# Characters of writing systems without spaces between words; each counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


def num_words(text: str) -> int:
    """The number of words between spaces, or of characters in writing systems without spaces."""
    return len(text.split()) if text.isascii() else len(_WORD.findall(text))


def scripts_of(text: str) -> Counter[str]:
    """How many letters of each writing system a text has."""
    if text.isascii():
        letters = sum(map(str.isalpha, text))
        return Counter({"LATIN": letters} if letters else {})
    counts = Counter[str]()
    for char, count in Counter(text).items():
        if char.isalpha():
            counts[_script(char)] += count
    return counts


@cache
def _script(char: str) -> str:
    name = unicodedata.name(char, "UNKNOWN").split()[0]
    # Japanese mixes these three; full-width letters are a variant of Latin.
    groups = {"CJK": "HAN", "HIRAGANA": "HAN", "KATAKANA": "HAN", "KATAKANA-HIRAGANA": "HAN", "FULLWIDTH": "LATIN"}
    return groups.get(name, name)


def _is_foreign(text: str, scripts: frozenset[str]) -> bool:
    if not scripts or (text.isascii() and "LATIN" in scripts):
        return False
    counts = scripts_of(text)
    foreign = sum(count for script, count in counts.items() if script not in scripts)
    return foreign >= _FEWEST_LETTERS and foreign > _MOST_FOREIGN * counts.total()


# The characters that the bytes 0x80 to 0xBF, which continue a character in UTF-8, are in Latin-1 and Windows-1252.
_CONTINUED = {chr(byte): byte for byte in range(0x80, 0xC0)}
for _byte in range(0x80, 0xA0):
    if _char := bytes([_byte]).decode("cp1252", "ignore"):
        _CONTINUED[_char] = _byte
_NEXT = "[" + re.escape("".join(_CONTINUED)) + "]"
_MISREAD = re.compile(f"[\u00c2-\u00df]{_NEXT}|[\u00e0-\u00ef]{_NEXT}{{2}}|[\u00f0-\u00f4]{_NEXT}{{3}}")
_AFTER_CAPITALS = frozenset("‘’“”…–—›»™\u00a0")  # characters that often follow a word in capitals


def has_mojibake(text: str) -> bool:
    """Whether a text contains UTF-8 that was decoded as Latin-1 or Windows-1252 ("Ã¼" for "ü"), or U+FFFD."""
    if text.isascii():
        return False
    return "\ufffd" in text or any(_was_misread(match) for match in _MISREAD.finditer(text))


def _was_misread(match: re.Match[str]) -> bool:
    lead, rest = match[0][0], match[0][1:]
    try:
        meant = bytes([ord(lead), *(_CONTINUED[char] for char in rest)]).decode("utf-8")
    except UnicodeDecodeError:
        return False
    before = match.string[match.start() - 1] if match.start() else " "
    if before.isupper() and rest[0] in _AFTER_CAPITALS:
        return False  # "VOILÀ…"
    if lead in "ÂÃ":
        return True
    if len(rest) == 1 or "\u00a0" in rest or "«" in rest:  # "DÉJÀ »", "à\u00a0«"
        return meant.isalpha() and rest[0] not in _AFTER_CAPITALS
    return meant.isalpha() or unicodedata.category(meant)[0] in "MPS" or ord(meant) > 0xFFFF


def _squeezed(text: str) -> str:
    """A text with single spaces and no control characters."""
    return " ".join(tidy(text).split())
