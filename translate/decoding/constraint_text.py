"""Words to constraints of a search, and back: banned words, prefixes, entities to keep, unknown words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from translate.decoding.constraints import Constraint, Pieces
from translate.errors import UserError
from translate.text.corpus import tidy
from translate.text.tokenizer import SPACE, UNK, Tokenizer

MOST_SPELLINGS = 1000  # of one banned phrase
MOST_ENTITIES = 50  # of one line: more would make search slow, and do not fit into the beam
_ENTITY = re.compile(
    r"https?://[^\s<>\"]+[^\s<>\".,;:!?)\]}']"  # a URL does not end in the sentence's punctuation
    r"|www\.[^\s<>\"]+[^\s<>\".,;:!?)\]}']"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![A-Za-z\d])[$€£¥+-]?[A-Za-z]*\d[A-Za-z\d]*(?:[.,:/-][A-Za-z]*\d[A-Za-z\d]*)*%?"  # 3.5, A4, 2019-05-03
)


def banned_pieces(tokenizer: Tokenizer, phrases: Sequence[str]) -> list[Pieces]:
    """The segmentations of each phrase into pieces, the tokenizer's own first, then those with long pieces."""
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
        spellings |= dict.fromkeys(filter(None, [usual, *islice(_spellings(text, index, longest), MOST_SPELLINGS)]))
    return list(spellings)


def _spellings(text: str, index: dict[str, int], longest: int) -> Iterator[Pieces]:
    """All ways to cut a text into pieces, long pieces first."""
    # For each position: the pieces that start there and can lead to the end of the text, and where they end.
    follow: list[list[tuple[int, int]]] = [[] for _ in text]
    for begin in reversed(range(len(text))):
        for end in range(min(begin + longest, len(text)), begin, -1):
            piece = index.get(text[begin:end])
            if piece is not None and (end == len(text) or follow[end]):
                follow[begin].append((piece, end))

    def from_place(begin: int) -> Iterator[Pieces]:
        if begin == len(text):
            yield ()
            return
        for piece, end in follow[begin]:
            for rest in from_place(end):
                yield (piece, *rest)

    return from_place(0)


def make_constraints(
    tokenizer: Tokenizer,
    lines: Sequence[str],
    prefixes: Sequence[str] | None,
    required: Sequence[Sequence[str]] | None,
    keep_entities: bool,
    first_line: int,
) -> list[Constraint] | None:
    """The constraints on each line's translation, in target pieces; None if there are none."""
    if prefixes is None and required is None and not keep_entities:
        return None
    each = []
    for i, line in enumerate(lines):
        where = f"line {first_line + i}"
        prefix = _known(tokenizer, prefixes[i], f"{where}: the prefix") if prefixes is not None else ()
        phrases = [_known(tokenizer, word, f"{where}: the required") for word in required[i]] if required else []
        if keep_entities:
            spelt = [_pieces_of(tokenizer, entity) for entity in entities(line)]
            if len(spelt) > MOST_ENTITIES:
                warnings.warn(
                    f"{where} has {len(spelt)} e-mail addresses, URLs and numbers; the first {MOST_ENTITIES} are kept.",
                    stacklevel=3,
                )
            # An unknown word is copied by `replace_unknown`, not required.
            phrases += [pieces for pieces in spelt[:MOST_ENTITIES] if UNK not in pieces]
        each.append(Constraint(prefix, tuple(dict.fromkeys(filter(None, phrases)))))
    return each


def entities(line: str) -> list[re.Match[str]]:
    """The e-mail addresses, URLs and numbers of a line, with their spans."""
    return list(_ENTITY.finditer(line))


def _pieces_of(tokenizer: Tokenizer, entity: re.Match[str]) -> Pieces:
    """The pieces of an entity; after a bracket or the like, as inside a word, if they can be separated from it."""
    before = entity.string[entity.start() - 1 : entity.start()].strip(" ")
    if before and not before.isalnum():
        ids, spans = tokenizer.encode_spans(before + entity.group())
        inner = tuple(piece for piece, (begin, _) in zip(ids, spans, strict=True) if begin >= 1)
        if any(begin == 1 for begin, _ in spans) and all(end <= 1 for begin, end in spans if begin < 1):
            return inner
    return tuple(tokenizer.encode(entity.group()))


def _known(tokenizer: Tokenizer, text: str, what: str) -> Pieces:
    pieces = tuple(tokenizer.encode(text))
    if UNK in pieces:
        raise UserError(f"{what} {text!r} has a word or character that is not in the target vocabulary. Leave it out.")
    return pieces


def replace_unknown(
    source: Tokenizer,
    target: Tokenizer,
    line: str,
    tgt_ids: Sequence[int],
    attention: NDArray[np.float32],
    banned: Collection[str] = (),
) -> str:
    """The text of target pieces, with the source word that attention points to in place of each unknown word.

    Luong et al. 2015, "Addressing the rare word problem"; the pointer here is attention. Banned words stay unknown.
    """
    text, places = target.decode_words(tgt_ids)
    words, clean = text.split(" "), tidy(line)
    spans = source.encode_spans(line)[1][: attention.shape[1] - 1]
    for step, (token, place) in enumerate(zip(tgt_ids, places, strict=True)):
        if token == UNK and place >= 0 and spans:
            begin, end = spans[int(attention[step, : len(spans)].argmax())]
            if begin < end and clean[begin:end] not in banned:
                words[place] = clean[begin:end]
    return " ".join(words)
