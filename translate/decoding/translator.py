"""Text in, text out: tokenize, batch by length, search, and give back every translation with its attention."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from translate.checkpoint import Run
from translate.config import SearchConfig
from translate.data.batches import Batch, collate, collate_source, token_batches
from translate.data.dataset import PairDataset
from translate.decoding.beam import beam_search
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import Hypothesis, normalise
from translate.models.seq2seq import Seq2Seq
from translate.text.tokenizer import EOS, Tokenizer


@dataclass(frozen=True)
class Translation:
    """A translation and how it came about."""

    text: str
    score: float
    """Log probability by the search's length normalisation: what is ranked."""
    log_prob: float
    src_ids: tuple[int, ...]
    """Source pieces and `</s>`."""
    tgt_ids: tuple[int, ...]
    """Target pieces and `</s>`."""
    attention: NDArray[np.float32] | None
    """Weights (target, source) of the pieces and `</s>`; None for a decoder without attention."""


class Translator:
    """A model with its tokenizers."""

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        search: SearchConfig,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model
        self.source = source
        self.target = target
        self.search = search
        self.device = torch.device(device)

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> Translator:
        """The best model of a run."""
        run = Run.open(path)
        source, target = run.tokenizers()
        return cls(run.load_model().to(device), source, target, run.config().search, device)

    def translate(
        self, lines: Sequence[str], search: SearchConfig | None = None, num_best: int = 1, first_line: int = 1
    ) -> list[list[Translation]]:
        """For each line its best translations, best first; an empty line has one empty translation."""
        search = search or self.search
        sentences = self._encode(lines, search.max_source, first_line)
        results = [[self._empty()] for _ in lines]
        for rows in self._batches(sentences, search.batch_tokens):
            hypotheses = self._search([sentences[row] for row in rows], search, num_best)
            for row, found in zip(rows, hypotheses, strict=True):
                results[row] = [self._translation(sentences[row], hypothesis) for hypothesis in found]
        return results

    def force(self, sources: Sequence[str], targets: Sequence[str], first_line: int = 1) -> list[Translation]:
        """Given translations with their probability and attention under the model."""
        src = self._encode(sources, self.search.max_source, first_line)
        tgt = self._encode(targets, self.search.max_source, first_line, side=self.target)
        dataset = PairDataset.from_pairs(list(zip(src, tgt, strict=True)))
        order = np.argsort(dataset.tgt_lengths + dataset.src_lengths, kind="stable")
        results: dict[int, Translation] = {}
        longest = np.maximum(dataset.src_lengths, dataset.tgt_lengths)
        for rows in token_batches(longest, self.search.batch_tokens, order):
            batch = collate(dataset, rows)
            for row, translation in zip(rows, self._forced(batch), strict=True):
                results[int(row)] = translation
        return [results[row] for row in range(len(src))]

    @torch.inference_mode()
    def _forced(self, batch: Batch) -> Iterator[Translation]:
        self.model.eval()
        moved = batch.to(self.device)
        decoded, source = self.model(moved.src, moved.src_valid, moved.src_lengths, moved.tgt_in)
        columns = []
        for t, tokens in enumerate(moved.tgt_out.unbind(dim=1)):  # one position at a time: (B·T, V) could be huge
            weights = None if decoded.weights is None else decoded.weights[:, t]
            log_probs = self.model.decoder.output(decoded.features[:, t], weights, source)  # (B, V)
            columns.append(log_probs.gather(1, tokens.unsqueeze(1)))  # (B, 1)
        totals = (torch.cat(columns, dim=1) * moved.tgt_valid).sum(dim=1)  # (B,)
        scores = normalise(totals, moved.tgt_valid.sum(dim=1), self.search)
        for row, (total, score) in enumerate(zip(totals.tolist(), scores.tolist(), strict=True)):
            num_src, num_tgt = int(batch.src_valid[row].sum()), int(batch.tgt_valid[row].sum())
            tgt_ids = tuple(batch.tgt_out[row, :num_tgt].tolist())
            attention = None
            if decoded.weights is not None:
                attention = decoded.weights[row, :num_tgt, :num_src].float().cpu().numpy()
            src_ids = tuple(batch.src[row, :num_src].tolist())
            yield Translation(self.target.decode(tgt_ids), score, total, src_ids, tgt_ids, attention)

    @torch.inference_mode()
    def _search(self, sentences: list[list[int]], search: SearchConfig, num_best: int) -> list[list[Hypothesis]]:
        self.model.eval()
        src, valid, lengths = collate_source(sentences)
        source = self.model.encode(src.to(self.device), valid.to(self.device), lengths)
        if search.beam == 1 and num_best == 1:
            return [[hypothesis] for hypothesis in greedy(self.model, source, search)]
        return beam_search(self.model, source, search, num_best)

    def _encode(
        self, lines: Sequence[str], longest: int, first_line: int, side: Tokenizer | None = None
    ) -> list[list[int]]:
        sentences = (side or self.source).encode_all(lines)
        for number, sentence in enumerate(sentences, start=first_line):
            if len(sentence) > longest:
                warnings.warn(
                    f"line {number} has {len(sentence):,} pieces; those after the first {longest:,} "
                    "(search.max_source) are left out.",
                    stacklevel=3,
                )
        return [sentence[:longest] for sentence in sentences]

    def _batches(self, sentences: list[list[int]], budget: int) -> list[NDArray[np.int64]]:
        """Rows of like length together, long ones first; empty sentences are in none."""
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        return token_batches(lengths, budget, order[lengths[order] > 1])

    def _translation(self, sentence: list[int], hypothesis: Hypothesis) -> Translation:
        return Translation(
            text=self.target.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            src_ids=(*sentence, EOS),
            tgt_ids=(*hypothesis.tokens, EOS),
            attention=hypothesis.weights,
        )

    def _empty(self) -> Translation:
        attention = None if self.model.decoder.attention is None else np.ones((1, 1), dtype=np.float32)
        return Translation("", 0.0, 0.0, (EOS,), (EOS,), attention)
