"""Given links as targets of attention: links of words in a file become weights over the pieces of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from translate.alignment.formats import Gold, read_alignments
from translate.data.batches import Batch
from translate.data.dataset import PairDataset
from translate.errors import ConfigError, DataError
from translate.text.tokenizer import Tokenizer

FIRST_CHECKED = 1000  # pairs whose links are compared with their words before training starts


class Guide:
    """The links of the training pairs."""

    def __init__(self, path: Path, pairs: PairDataset, source: Tokenizer, target: Tokenizer) -> None:
        self.path, self.pairs, self.source, self.target = path, pairs, source, target
        self.links = read_links(path, int(pairs.lines.max()))
        for row in range(min(len(pairs), FIRST_CHECKED)):
            self.of_pieces(int(pairs.lines[row]), *(side.tolist() for side in pairs[row]))

    def of_pieces(self, line: int, src: Sequence[int], tgt: Sequence[int]) -> NDArray[np.float32]:
        """Target weights of each target piece, `</s>` included on both sides: (T, S), rows sum to 1 or to 0.

        All pieces of all words that a piece's word is linked to get equal weight. Words without links have no target,
        nor has `</s>`.
        """
        src_words = np.asarray(self.source.decode_words(src)[1], np.int64)  # (S - 1,)
        tgt_words = np.asarray(self.target.decode_words(tgt)[1], np.int64)  # (T - 1,)
        linked = np.zeros((int(tgt_words.max(initial=-1)) + 1, int(src_words.max(initial=-1)) + 1), bool)  # (J, I)
        for link in self.links[line - 1].possible:
            if link.target >= linked.shape[0] or link.source >= linked.shape[1]:
                raise DataError(
                    f"{self.path}:{line}: {link.source}-{link.target} links words that do not exist: the pair has "
                    f"{linked.shape[1]} source and {linked.shape[0]} target words. Links go source-target, from 0."
                )
            linked[link.target, link.source] = True
        guide = np.zeros((len(tgt) + 1, len(src) + 1), np.float32)
        rows, columns = np.flatnonzero(tgt_words >= 0), np.flatnonzero(src_words >= 0)
        guide[np.ix_(rows, columns)] = linked[tgt_words[rows]][:, src_words[columns]]
        return guide / np.maximum(guide.sum(axis=1, keepdims=True), 1.0)

    def targets(self, batch: Batch) -> Tensor:
        """The same for a batch, whose segmentation may differ from that of the pairs: (B, T, S)."""
        targets = torch.zeros((*batch.tgt_out.shape, batch.src.size(1)))
        src_lengths, tgt_lengths = batch.src_lengths.tolist(), batch.tgt_valid.sum(dim=1).tolist()
        for place, row in enumerate(batch.rows.tolist()):
            src, tgt = batch.src[place, : src_lengths[place] - 1], batch.tgt_out[place, : tgt_lengths[place] - 1]
            guide = self.of_pieces(int(self.pairs.lines[row]), src.tolist(), tgt.tolist())
            targets[place, : guide.shape[0], : guide.shape[1]] = torch.from_numpy(guide)
        return targets


def read_links(path: Path, num_lines: int) -> Sequence[Gold]:
    """The links of every line of the training data."""
    found = read_alignments(path).filled(num_lines).sentences
    if len(found) < num_lines:
        raise DataError(
            f"train.guided.links: {path} has {len(found):,} lines of links, but the training data has a pair at line "
            f"{num_lines:,}: line N of each must belong together, empty where there is no link."
        )
    return found


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file of links."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            f"train.guided.links: {path}: cannot be read: {error.strerror}. Give a file of links, or leave it out."
        ) from None
