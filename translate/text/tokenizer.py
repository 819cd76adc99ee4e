"""Text to pieces and back, by sentencepiece; and which word each piece belongs to.

A word is a maximal run of characters without an ASCII space.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from translate.config import TokenizerConfig
from translate.errors import DataError, RunError
from translate.text.corpus import BREAKS, tidy
from translate.text.seeds import seed_pieces

PAD, UNK, BOS, EOS = 0, 1, 2, 3

SPACE = "▁"  # what sentencepiece writes for a space
_UNKNOWN = "⁇"
_RESERVED = "▅"  # sentencepiece skips training lines with this character
_NUM_SPECIAL, _NUM_BYTES = 4, 256
_MOST_LINES = 200_000  # sampled from a larger corpus: three times the text saves 0.3 % of the pieces
_LONGEST_LINE = 1000  # longer lines are cut for training, which is slow and needs much memory on them
_MOST_SEEDS = 1_000_000  # sentencepiece's own limit; it counts characters too and drops the rarest ones beyond it
_LINE_COPIES = 2  # how often sentencepiece 0.2.2 reads each line when it looks for seeds
_SEEDS_PATH_LENGTH = 200  # filled up with slashes, so that a model's length does not depend on the temporary folder
_NUM_THREADS = 4  # fixed, because the rounding, and so the pieces, depend on it
_NO_PIECE = re.compile(f"{_RESERVED}|<(pad|unk|s|/s)>|.{{{_LONGEST_LINE + 1}}}")  # words that sentencepiece refuses
_VISIBLE = re.compile(f"[^{SPACE}]+")  # the words of a line that sentencepiece has normalized
_SEPARATORS = re.compile(b"|".join(re.escape(char.encode()) for char in " " + BREAKS))


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig, seed: int, say: Callable[[str], None]) -> bytes:
    """Learn pieces from lines and return sentencepiece's model file; `say` reports what the vocabulary cannot hold."""
    if config.kind == "word":
        words = _count_words(_sample(iter(lines), seed), config)
        able = Counter({word: count for word, count in words.items() if not _NO_PIECE.search(word)})
        counts = Counter(dict(able.most_common(config.vocabulary - _NUM_SPECIAL)))
    else:
        counts = Counter(_without_rare_characters(_sample(_training_lines(lines), seed), config, say))
    if not counts:
        what = "word that can be a piece" if config.kind == "word" else "visible character"
        raise DataError(f"The tokenizer has nothing to learn from: the training text holds no {what}.")
    try:
        model = _train_from_seeds(counts, config) if config.kind == "unigram" else _train(counts, config)
    except RuntimeError as error:
        raise DataError(f"The tokenizer cannot learn from this text: sentencepiece says: {error}") from None
    tokenizer = Tokenizer(model)
    if config.kind == "word":
        _say_unknown_words(words, tokenizer, config, say)
    size = tokenizer.size
    if size < config.vocabulary:
        say(f"The vocabulary has {size:,} pieces, not {config.vocabulary:,}: the training text yields no more.")
    return model


def _train(counts: Counter[str], config: TokenizerConfig, **more: Any) -> bytes:
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        # Each line once, with its count: the search for repeated substrings is quadratic in repeated lines.
        sentence_iterator=(f"{line}\t{count}" for line, count in counts.items()),
        input_format="tsv",
        model_writer=writer,
        model_type=config.kind,
        vocab_size=config.vocabulary,
        hard_vocab_limit=False,
        character_coverage=1.0,
        byte_fallback=config.spells_bytes,
        normalization_rule_name=config.normalization,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        max_sentence_length=4 * _LONGEST_LINE,
        num_threads=_NUM_THREADS,
        minloglevel=2,
        **more,
    )
    return writer.getvalue()


def _train_from_seeds(counts: Counter[str], config: TokenizerConfig) -> bytes:
    """Unigram, with our own seeds: sentencepiece 0.2.3 makes no seed from a word that is always followed by a space."""
    words = Counter({SPACE + word: count for word, count in _count_words(counts, config).items()})
    seeds = seed_pieces(words, most=_MOST_SEEDS - config.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/" * max(1, _SEEDS_PATH_LENGTH - len(folder.encode())) + "seeds.tsv"
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{piece}\t{_LINE_COPIES * count}\n" for piece, count in seeds)
        model = _train(counts, config, seed_sentencepieces_file=path)
    # The model contains the path, which differs from run to run: replace it by slashes of the same length.
    return model.replace(folder.encode(), b"/" * len(folder.encode()))


class Tokenizer:
    """Text to piece ids and back."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.size: int = processor.get_piece_size()
            self._pieces: list[str] = [processor.id_to_piece(index) for index in range(self.size)]
            # Every kind but "word" has a piece for a single space, because every line starts with one.
            self._whole_words = SPACE not in self._pieces
            self._bytes = [_bytes_of(processor, index, piece) for index, piece in enumerate(self._pieces)]
            if self._whole_words:
                self._bytes[UNK] = b" " + self._bytes[UNK]  # an unknown word is a word
            special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        except (RuntimeError, ValueError, IndexError) as error:
            raise RunError(f"not a sentencepiece model: {error or 'empty'}") from None
        if special != (PAD, UNK, BOS, EOS):
            raise RunError(f"pad, unk, bos and eos must be the pieces 0, 1, 2, 3, not {special}")
        self._processor = processor
        self._index = {piece: index for index, piece in enumerate(self._pieces)} if self._whole_words else {}

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a model file."""
        try:
            return cls(path.read_bytes())
        except (RunError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RunError(f"{path}: cannot be read as a tokenizer: {reason}.") from None

    @property
    def whole_words(self) -> bool:
        """Whether a piece is a word, so that a word can be unknown."""
        return self._whole_words

    def encode(self, text: str) -> list[int]:
        """The pieces of a text, without start and end symbols."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of many texts, faster than one by one."""
        clean = [tidy(text) for text in texts]
        if self._whole_words:
            return [self._word_ids(line) for line in self._processor.normalize([_spaced(text) for text in clean])]
        ids: list[list[int]] = self._processor.encode(clean)
        return ids

    def normalize(self, text: str) -> str:
        """The normalized text with single spaces between words: the best that `decode` can restore."""
        line: str = self._processor.normalize(_spaced(tidy(text)))
        return " ".join(_VISIBLE.findall(line))

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The pieces of many texts one after another, and how many each has.

        Made for threads: most of it runs in C++ without Python's lock, on the thread that calls it.
        """
        if self._whole_words:
            spelt: Sequence[Any] = self.encode_all(texts)
            ids = np.fromiter(itertools.chain.from_iterable(spelt), np.int32)
        else:
            spelt = self._processor.encode([tidy(text) for text in texts], return_type="numpy", num_threads=1)
            ids = np.concatenate([np.zeros(0, np.int32), *spelt])
        return ids, np.fromiter(map(len, spelt), np.int64, len(spelt))

    def spellings(self, ids: Sequence[int], number: int) -> tuple[list[list[int]], NDArray[np.float64]]:
        """The likeliest segmentations of the text of these pieces, and the log probability of each; unigram only."""
        if UNK in ids:  # the text cannot be restored
            return [list(ids)], np.zeros(1)
        text = self._processor.decode(list(ids))
        ways: list[list[int]] = self._processor.nbest_encode(text, nbest_size=number, out_type=int)
        return ways, np.array([self._scores[way].sum() for way in ways])

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        """The log probability of each piece."""
        return np.array([self._processor.get_score(index) for index in range(self.size)])

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """The pieces of a text, and for each the index of the word it lies in, or -1."""
        clean = tidy(text)
        word_at = list(_words_at(text))
        if self._whole_words:
            line, places = self._processor.normalize(_spaced(clean), with_offsets=True)
            ends = [match.end() for match in _VISIBLE.finditer(line)]
            return self._word_ids(line), [word_at[places[end - 1]] for end in ends]
        mapping: dict[str, Any] = self._processor.encode(clean, return_type="offset_mapping")
        words = []
        for piece, (begin, end) in zip(mapping["pieces"], mapping["offsets"], strict=True):
            if begin == end and piece.strip(SPACE):
                end += 1  # of a character's bytes, all but the last have an empty span before the character
            # The last character decides: a piece starts with the spaces before it, including no-break spaces.
            places = reversed(range(begin, min(end, len(text))))
            words.append(next((word_at[place] for place in places if clean[place] != " "), -1))
        return mapping["ids"], words

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The pieces of a text, and for each the characters it covers without spaces; bytes of a character share it."""
        clean = tidy(text)
        if self._whole_words:
            line, places = self._processor.normalize(_spaced(clean), with_offsets=True)
            raw = [(places[match.start()], places[match.end() - 1] + 1) for match in _VISIBLE.finditer(line)]
            return self._word_ids(line), [_stripped(clean, *span) for span in raw]
        mapping: dict[str, Any] = self._processor.encode(clean, return_type="offset_mapping")
        spans = []
        for piece, (begin, end) in zip(mapping["pieces"], mapping["offsets"], strict=True):
            spelt = begin == end and piece.strip(SPACE)  # a byte of a character but not its last, as above
            spans.append(_stripped(clean, begin, min(end + bool(spelt), len(text))))
        return mapping["ids"], spans

    def _word_ids(self, line: str) -> list[int]:
        """One piece for each word: sentencepiece itself makes one unknown piece of several unknown words in a row."""
        return [self._index.get(SPACE + word, UNK) for word in _VISIBLE.findall(line)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces on one line: no control characters, words one space apart."""
        return self.decode_words(ids)[0]

    def decode_words(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """The text of the pieces, and for each piece the index of its word in `text.split(" ")`, or -1."""
        spelt = [self._bytes[index] for index in ids]
        raw = b"".join(spelt)
        spans = list(_spans_between_separators(raw))
        words, word, begin = [], 0, 0
        for part in spelt:
            end = begin + len(part)
            while word < len(spans) and spans[word][1] <= begin:
                word += 1
            touches = word < len(spans) and max(begin, spans[word][0]) < end
            words.append(word if touches else -1)
            begin = end
        # Separators are single valid characters, so the runs between them can be decoded separately.
        return " ".join(raw[begin:end].decode("utf-8", "replace") for begin, end in spans), words

    def decode_spans(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of the pieces, and for each piece the characters it covers without spaces."""
        spelt = [self._bytes[index] for index in ids]
        raw = b"".join(spelt)
        text, place_of = "", dict[int, tuple[int, int]]()  # where in the text the character of a byte begins and ends
        for begin, end in _spans_between_separators(raw):
            text += " " if text else ""
            run = raw[begin:end].decode("utf-8", "replace")
            try:
                raw[begin:end].decode()
                characters = [(char.encode(), len(text) + i, len(text) + i + 1) for i, char in enumerate(run)]
            except UnicodeDecodeError:  # invalid UTF-8: the whole run is one unit
                characters = [(raw[begin:end], len(text), len(text) + len(run))]
            at = begin
            for content, first, last in characters:
                place_of |= dict.fromkeys(range(at, at + len(content)), (first, last))
                at += len(content)
            text += run
        spans, at = [], 0
        for part in spelt:
            covered = [place_of[byte] for byte in range(at, at + len(part)) if byte in place_of]
            spans.append((covered[0][0], covered[-1][1]) if covered else (0, 0))
            at += len(part)
        return text, spans

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as text."""
        return [self._pieces[index] for index in ids]


def _bytes_of(processor: Any, index: int, piece: str) -> bytes:
    if processor.is_byte(index):
        return bytes([int(piece[1:-1], 16)])
    if processor.is_unknown(index):
        return _UNKNOWN.encode()
    if processor.is_control(index):
        return b""
    return piece.replace(SPACE, " ").encode()


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    """A span without the spaces at its ends."""
    while begin < end and text[begin] == " ":
        begin += 1
    while begin < end and text[end - 1] == " ":
        end -= 1
    return begin, end


def _spaced(text: str) -> str:
    """Replace sentencepiece's mark of a space by a space, as its other model types do."""
    return text.replace(SPACE, " ")


def _words_at(text: str) -> Iterator[int]:
    """For each character the number of the word it is in or follows."""
    word, before = -1, " "
    for char in text:
        word += before == " " and char != " "
        yield word
        before = char


def _spans_between_separators(raw: bytes) -> Iterator[tuple[int, int]]:
    begin = 0
    for separator in _SEPARATORS.finditer(raw):
        if begin < separator.start():
            yield begin, separator.start()
        begin = separator.end()
    if begin < len(raw):
        yield begin, len(raw)


def _training_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        clean = tidy(line).replace(_RESERVED, " ")
        for begin in range(0, len(clean), _LONGEST_LINE):
            part = clean[begin : begin + _LONGEST_LINE].strip()
            if part:
                yield part


def _sample(lines: Iterator[str], seed: int) -> list[str]:
    """At most `_MOST_LINES` lines, all equally likely (reservoir sampling)."""
    generator = random.Random(seed)
    sample: list[str] = []
    for seen, line in enumerate(lines):
        if seen < _MOST_LINES:
            sample.append(line)
        elif (place := int(generator.random() * (seen + 1))) < _MOST_LINES:  # three times as fast as randrange
            sample[place] = line
    return sample


def _count_words(lines: Iterable[str], config: TokenizerConfig) -> Counter[str]:
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=config.normalization)
    counts = Counter[str]()
    for line in lines:
        # Up to sentencepiece 0.2.2 spaces stay spaces here, from 0.2.3 on they become its mark.
        normal = _spaced(normalizer.normalize(_spaced(tidy(line))))
        counts.update(word for word in normal.split(" ") if word)
    return counts


def _say_unknown_words(
    words: Counter[str], tokenizer: Tokenizer, config: TokenizerConfig, say: Callable[[str], None]
) -> None:
    known = [words[piece.removeprefix(SPACE)] for piece in tokenizer.pieces(range(_NUM_SPECIAL, tokenizer.size))]
    if len(known) == len(words):
        return
    more = " A larger tokenizer.vocabulary has room for more." if tokenizer.size == config.vocabulary else ""
    say(
        f"The text has {len(words):,} different words; {len(known):,} of them ({sum(known) / words.total():.2%} of the "
        f"text) become pieces, the others are unknown.{more}"
    )


def _without_rare_characters(sample: list[str], config: TokenizerConfig, say: Callable[[str], None]) -> list[str]:
    """Blank out the rarest characters if one piece for each would take more than half of the vocabulary.

    For kind "char" they may take all of it except the piece of the space.
    sentencepiece's own coverage cannot go below 98 %, which is too much for a large alphabet in a small vocabulary.
    """
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=config.normalization)
    normalized = [normalizer.normalize(line) for line in sample]
    counts = Counter[str]()
    for line in normalized:
        counts.update(line)
    room = config.vocabulary - _NUM_SPECIAL - _NUM_BYTES * config.spells_bytes
    most = room // 2
    if config.kind == "char":
        del counts[" "], counts[SPACE]  # it always has a piece
        most = room - 1
    if len(counts) <= most:
        return sample
    frequent = counts.most_common(most)
    covered = sum(count for _, count in frequent) / counts.total()
    rest = "spelt as bytes" if config.spells_bytes else "unknown"
    say(
        f"The text has {len(counts):,} different characters; the {most:,} most frequent ({covered:.2%} of the text) "
        f"become pieces, the others are {rest}. A larger tokenizer.vocabulary has room for more."
    )
    blanked = dict.fromkeys(map(ord, counts.keys() - dict(frequent).keys()), " ")
    lines = (line.translate(blanked).strip() for line in normalized)
    return [line for line in lines if line]
