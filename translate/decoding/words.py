"""From words to what search understands, and back: bans, wishes, entities that must survive, unknown words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from translate.decoding.rules import Pieces, Wish
from translate.errors import UserError
from translate.text.tokenizer import SPACE, UNK, Tokenizer

_MOST_SPELLINGS = 1000  # of one banned phrase
_ENTITY = re.compile(
    r"https?://[^\s<>\"]+[^\s<>\".,;:!?)\]}']"  # a URL does not end in the sentence's punctuation
    r"|www\.[^\s<>\"]+[^\s<>\".,;:!?)\]}']"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\d+(?:[.,:/]\d+)*"
)


def banned_pieces(tokenizer: Tokenizer, phrases: Sequence[str]) -> list[Pieces]:
    """Every way in which the vocabulary's pieces spell each phrase, the tokenizer's own first."""
    if not phrases:
        return []
    index = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.size))) if number > UNK}
    longest = max(map(len, index))
    spellings: dict[Pieces, None] = {}
    for phrase in phrases:
        if not phrase.strip(" "):
            raise UserError("search.banned has an empty phrase: leave it out.")
        usual = tuple(tokenizer.encode(phrase))
        if UNK in usual and not tokenizer.whole_words:
            usual = ()
        if UNK in usual:
            continue  # no word of this vocabulary, so it cannot be written
        text = SPACE + SPACE.join(word for word in phrase.split(" ") if word)
        spellings |= dict.fromkeys(filter(None, [usual, *islice(_spellings(text, index, longest), _MOST_SPELLINGS)]))
    return list(spellings)


def _spellings(text: str, index: dict[str, int], longest: int) -> Iterator[Pieces]:
    """All ways to cut a text into pieces, long pieces first."""
    if not text:
        yield ()
        return
    for size in range(min(longest, len(text)), 0, -1):
        piece = index.get(text[:size])
        if piece is not None:
            for rest in _spellings(text[size:], index, longest):
                yield (piece, *rest)


def make_wishes(
    tokenizer: Tokenizer,
    lines: Sequence[str],
    prefixes: Sequence[str] | None,
    required: Sequence[Sequence[str]] | None,
    keep_entities: bool,
    first_line: int,
) -> list[Wish] | None:
    """What is asked of each line's translation, in target pieces; None where nothing is."""
    if prefixes is None and required is None and not keep_entities:
        return None
    wishes = []
    for i, line in enumerate(lines):
        where = f"line {first_line + i}"
        prefix = _known(tokenizer, prefixes[i], f"{where}: the prefix") if prefixes is not None else ()
        phrases = [_known(tokenizer, word, f"{where}: the required") for word in required[i]] if required else []
        if keep_entities:
            spelt = [tuple(tokenizer.encode(entity)) for entity in entities(line)]
            phrases += [pieces for pieces in spelt if UNK not in pieces]  # of an unknown word attention takes care
        wishes.append(Wish(prefix, tuple(dict.fromkeys(filter(None, phrases)))))
    return wishes


def entities(line: str) -> list[str]:
    """The e-mail addresses, URLs and numbers of a line."""
    return [match.group() for match in _ENTITY.finditer(line)]


def _known(tokenizer: Tokenizer, text: str, what: str) -> Pieces:
    pieces = tuple(tokenizer.encode(text))
    if UNK in pieces:
        raise UserError(f"{what} {text!r} has a word or character that is not in the target vocabulary. Leave it out.")
    return pieces


def replace_unknown(
    source: Tokenizer, target: Tokenizer, line: str, tgt_ids: Sequence[int], attention: NDArray[np.float32]
) -> str:
    """The text of target pieces, with the source word that attention points to in place of each unknown word.

    Luong et al. 2015, "Addressing the rare word problem"; the pointer here is attention.
    """
    text, places = target.decode_words(tgt_ids)
    words, src_words = text.split(" "), [word for word in line.split(" ") if word]
    src_places = source.encode_words(line)[1][: attention.shape[1] - 1]
    for step, (token, place) in enumerate(zip(tgt_ids, places, strict=True)):
        if token == UNK and place >= 0 and src_places:
            looked = int(attention[step, : len(src_places)].argmax())
            if src_places[looked] >= 0:
                words[place] = src_words[src_places[looked]]
    return " ".join(words)
