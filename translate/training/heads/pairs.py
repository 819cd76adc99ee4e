"""Pairs for alignment heads: one text in the pieces of two runs, and which word each piece belongs to.

Letters beside those of `translate/models`: **I** source words, **J** target words of the forward run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from translate.alignment.formats import Link
from translate.alignment.units import Units, words
from translate.data.batches import Batch, Rows, collate
from translate.data.dataset import PairDataset
from translate.decoding.aligner import AlignSettings, units_of_pair
from translate.decoding.translator import Translator
from translate.errors import DataError, RunError
from translate.run.directory import Run
from translate.text.corpus import parallel_files
from translate.training.heads.lexicon import WordPair

LEAST_FOR_HEADS = 10  # one of them is held out


@dataclass(frozen=True)
class HeadText:
    """Sentence pairs, and the line of each in its corpus, counted from 1."""

    sources: list[str]
    targets: list[str]
    lines: list[int]

    def part(self, rows: Rows) -> HeadText:
        """Some of the pairs."""
        return HeadText(*([column[row] for row in rows] for column in (self.sources, self.targets, self.lines)))


@dataclass(frozen=True)
class Side:
    """A batch in the pieces of one run."""

    batch: Batch
    tgt_members: Tensor  # (B, T, J), the share of each target piece in its word
    src_members: Tensor  # (B, S, I + 1), the word of each source piece; the last column is no word

    def by_word(self, weights: Tensor) -> Tensor:
        """Average over a target word's pieces and sum over a source word's: (B, T, S) -> (B, J, I + 1)."""
        return self.tgt_members.transpose(1, 2) @ weights @ self.src_members


@dataclass(frozen=True)
class HeadBatch:
    """Some pairs in the pieces of both runs; `backward` has I and J swapped."""

    forward: Side
    backward: Side
    words: Sequence[WordPair]
    links: list[list[Link]] | None  # given ones

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """I and J of each pair."""
        return [(len(src), len(tgt)) for src, tgt in self.words]


def read_text(run: Run, source: Path | None, target: Path | None, most: int, seed: int) -> HeadText:
    """The pairs of the given files, or else those a run was trained on; at most `most`, drawn by the seed."""
    if source is not None and target is not None:
        pairs = list(parallel_files(source, target).pairs())
        rows = _drawn(len(pairs), most, seed)
        return HeadText(
            [pair.source for pair in pairs], [pair.target for pair in pairs], [*range(1, len(pairs) + 1)]
        ).part(rows)
    path = run.path / "cache" / "train.arrow"
    try:
        prepared = PairDataset(path)
    except RunError:
        raise RunError(
            f"{run.path} does not hold the pairs it was trained on ({path.relative_to(run.path)}). "
            "Give text with --source and --target."
        ) from None
    tokenizers = run.tokenizers()
    sources, targets, lines = [], [], []
    for row in _drawn(len(prepared), most, seed).tolist():
        src, tgt = prepared[row]
        sources.append(tokenizers[0].decode(src.tolist()))
        targets.append(tokenizers[1].decode(tgt.tolist()))
        lines.append(int(prepared.lines[row]))
    return HeadText(sources, targets, lines)


def _drawn(count: int, most: int, seed: int) -> Rows:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.Generator(np.random.PCG64(seed)).choice(count, most, replace=False))


class HeadPairs:
    """Pairs in the pieces of two runs."""

    def __init__(
        self,
        forward: Translator,
        backward: Translator,
        text: HeadText,
        settings: AlignSettings,
        max_length: int,
        links: Mapping[int, Sequence[Link]] | None = None,
    ) -> None:
        """`max_length` is in pieces, 0 for no limit; `links` are by line; pairs with an empty side are left out."""
        self.forward, self.backward, self.settings, self.links = forward, backward, settings, links
        ours = forward.source.encode_all(text.sources), forward.target.encode_all(text.targets)
        theirs = backward.source.encode_all(text.targets), backward.target.encode_all(text.sources)
        lengths = np.array([[len(one) for one in side] for side in (*ours, *theirs)], np.int64).reshape(4, -1)
        fits = (lengths.min(axis=0) > 0) & ((lengths.max(axis=0) <= max_length) | (max_length == 0))
        kept = np.flatnonzero(fits)
        self.text = text.part(kept)
        self.forward_pairs = PairDataset.from_pairs([(ours[0][row], ours[1][row]) for row in kept])
        self.backward_pairs = PairDataset.from_pairs([(theirs[0][row], theirs[1][row]) for row in kept])
        self.left_out = len(text.lines) - len(kept)

    def __len__(self) -> int:
        return len(self.text.lines)

    def part(self, rows: Rows) -> HeadPairs:
        """Some of the pairs."""
        some = copy.copy(self)
        some.text = self.text.part(rows)
        some.forward_pairs, some.backward_pairs = (
            PairDataset.from_pairs([(src.tolist(), tgt.tolist()) for src, tgt in map(pairs.__getitem__, rows.tolist())])
            for pairs in (self.forward_pairs, self.backward_pairs)
        )
        return some

    def batch(self, rows: Rows, device: torch.device) -> HeadBatch:
        """The pairs of these rows."""
        both = [
            units_of_pair(self.forward, self.backward, self.text.sources[row], self.text.targets[row], self.settings)
            for row in rows.tolist()
        ]
        texts = [(ours[0].texts, ours[1].texts) for ours, _ in both]
        forward = _side(collate(self.forward_pairs, rows), [ours for ours, _ in both], device)
        backward = _side(collate(self.backward_pairs, rows), [theirs[::-1] for _, theirs in both], device)
        links = None if self.links is None else [self._given(row, *pair) for row, pair in zip(rows, texts, strict=True)]
        return HeadBatch(forward, backward, texts, links)

    def words(self, row: int) -> WordPair:
        """The units of a pair that are linked, source and target."""
        source, target = self.text.sources[row], self.text.targets[row]
        if self.settings.source_spans or self.settings.target_spans:
            (src, tgt), _ = units_of_pair(self.forward, self.backward, source, target, self.settings)
            return src.texts, tgt.texts
        return words(source)[0], words(target)[0]

    def _given(self, row: int, src: Sequence[str], tgt: Sequence[str]) -> list[Link]:
        assert self.links is not None
        line = self.text.lines[row]
        for link in self.links.get(line, ()):
            if link.source >= len(src) or link.target >= len(tgt):
                raise DataError(
                    f"--links, line {line}: {link.source}-{link.target} links words that do not exist: the pair has "
                    f"{len(src)} source and {len(tgt)} target words. Links go source-target, from 0."
                )
        return list(self.links.get(line, ()))


def _side(batch: Batch, units: Sequence[tuple[Units, Units]], device: torch.device) -> Side:
    """The batch with the words of its pieces; `units` are those of source and target."""
    most_src, most_tgt = (max(len(pair[side].texts) for pair in units) for side in (0, 1))
    src_members = np.zeros((*batch.src.shape, most_src + 1), np.float32)
    tgt_members = np.zeros((*batch.tgt_out.shape, most_tgt), np.float32)
    for row, (src, tgt) in enumerate(units):
        words = np.asarray(src.of_piece, np.int64)  # (S,), -1 for pieces outside words: the last column
        src_members[row, np.arange(len(words)), words] = 1.0
        tgt_members[row, : len(tgt.of_piece)] = _shares(np.asarray(tgt.of_piece, np.int64), most_tgt)
    return Side(batch.to(device), torch.from_numpy(tgt_members).to(device), torch.from_numpy(src_members).to(device))


def _shares(words: NDArray[np.int64], num_words: int) -> NDArray[np.float32]:
    """The share of each piece in its word (pieces, words); pieces at -1 have none."""
    members = words[:, None] == np.arange(num_words)  # (T, J)
    shares: NDArray[np.float32] = (members / np.maximum(members.sum(axis=0), 1)).astype(np.float32)
    return shares
