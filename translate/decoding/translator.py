"""From text to text: tokenize, batch by length, search, and return every translation with its attention."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from translate.config import SearchConfig, check_search
from translate.data.batches import Batch, collate, collate_source, token_batches
from translate.data.dataset import PairDataset
from translate.decoding.beam import beam_search
from translate.decoding.constraint_text import banned_pieces, make_constraints, replace_unknown
from translate.decoding.constraints import Constraint, Constraints, Pieces
from translate.decoding.ensemble import Ensemble
from translate.decoding.greedy import greedy
from translate.decoding.hypotheses import Hypothesis, normalise
from translate.decoding.packing import int8_for_search, packed_for_search
from translate.decoding.sampling import sample
from translate.decoding.search_model import SearchModel
from translate.errors import ConfigError, RunError
from translate.models.alignment_head import AlignmentHead
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.text.tokenizer import EOS, UNK, Tokenizer

MOST_ELEMENTS = 1 << 21  # rows × vocabulary of a step: beyond it, tables no longer fit into the processor's cache


@dataclass(frozen=True)
class Translation:
    """A translation with its score, pieces and attention."""

    text: str
    score: float
    """Log probability after length normalisation and coverage penalty, by which translations are ranked."""
    log_prob: float
    src_ids: tuple[int, ...]
    """Source pieces and `</s>`."""
    tgt_ids: tuple[int, ...]
    """Target pieces and `</s>`."""
    attention: NDArray[np.float32] | None
    """Weights (target, source) of the pieces and `</s>`; None for a decoder without attention."""
    tokens: tuple[str, ...] = ()
    """Target pieces and `</s>` by name."""
    token_log_probs: tuple[float, ...] = ()
    """Log probability of each of them."""


class Translator:
    """One or several models with their tokenizers."""

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        search: SearchConfig,
        device: torch.device | str = "cpu",
        others: Sequence[Seq2Seq] = (),
    ) -> None:
        self.model = model
        self.models = (model, *others)
        self.source = source
        self.target = target
        self.search = search
        self.device = torch.device(device)
        self.head: AlignmentHead | None = None
        """If it is set, alignments come from it and not from attention."""
        self._banned: dict[tuple[str, ...], list[Pieces]] = {}  # found before

    @classmethod
    def load(
        cls, path: Path | str, device: torch.device | str = "cpu", ensemble: Sequence[Path | str] = ()
    ) -> Translator:
        """The best model of a run, alone or with those of other runs that have the same tokenizers."""
        run = Run.open(Path(path))
        source, target = run.tokenizers()
        others = []
        direction = run.config().data.direction
        for other in map(Run.open, map(Path, ensemble)):
            if other.config().data.direction != direction:
                there, here = (" → ".join(pair) for pair in (other.config().data.direction, direction))
                raise RunError(
                    f"{other.path} translates {there}, {path} {here}: runs of an ensemble must have the same "
                    "direction. A run of the reverse direction can rerank (--rerank)."
                )
            if tuple(one.model for one in other.tokenizers()) != (source.model, target.model):
                raise RunError(
                    f"{other.path} and {path} have different tokenizers, so their words cannot be averaged. "
                    f"Train one from the other's with train.init_from, or with the same data, seed and [tokenizer]."
                )
            others.append(packed_for_search(other.load_model().to(device)))
        model = packed_for_search(run.load_model().to(device))
        return cls(model, source, target, run.config().search, device, others)

    @cached_property
    def network(self) -> SearchModel[Any, Any]:
        """What search calls: the model, or an ensemble of all models."""
        return _together(self.models)

    @cached_property
    def small_network(self) -> SearchModel[Any, Any]:
        """The same with products in 8 bits."""
        return _together([int8_for_search(model) for model in self.models])

    def translate(
        self,
        lines: Sequence[str],
        search: SearchConfig | None = None,
        num_best: int = 1,
        first_line: int = 1,
        prefixes: Sequence[str] | None = None,
        required: Sequence[Sequence[str]] | None = None,
        attention: bool = True,
    ) -> list[list[Translation]]:
        """For each line its best translations, best first; an empty line has one empty translation.

        A translation starts with the line's prefix and holds each of its required words. `first_line` is the number of
        the first line, in warnings and for draws. If `attention` is False, no weights are returned, which saves time.
        """
        search = search or self.search
        _check(search, num_best, required)
        sentences = self._encode(lines, search.max_source, range(first_line, first_line + len(lines)))
        seen = list(map(self._read_part, lines, sentences)) if search.keep_entities else lines
        each = make_constraints(self.target, seen, prefixes, required, search.keep_entities, first_line)
        banned = self._banned_pieces(search.banned)
        replaces = search.replace_unknown and self.target.whole_words
        results = [[self._empty()] for _ in lines]
        width = num_best if search.sample else search.beam
        for rows in batch_rows(sentences, search, width * self.target.size):
            some = [sentences[row] for row in rows]
            wanted = None if each is None else [each[row] for row in rows]
            numbers = [first_line + int(row) for row in rows]
            found = self._search(some, search, num_best, banned, wanted, numbers, attention or replaces)
            for row, hypotheses in zip(rows, found, strict=True):
                best = [self._translation(sentences[row], hypothesis) for hypothesis in hypotheses]
                results[row] = [self._replaced(lines[row], one, search.banned) for one in best] if replaces else best
        return results

    def force(
        self, sources: Sequence[str], targets: Sequence[str], first_line: int = 1, numbers: Sequence[int] | None = None
    ) -> list[Translation]:
        """Given translations with their probability and attention under the model.

        Warnings name lines from `first_line` on, or by their `numbers`.
        """
        numbers = numbers or range(first_line, first_line + len(sources))
        src = self._encode(sources, self.search.max_source, numbers)
        tgt = self._encode(targets, self.search.max_source, numbers, side=self.target)
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
        moved = batch.to(self.device)
        members = []
        for model in self.models:
            model.eval()
            members.append((model, *model(moved.src, moved.src_valid, moved.src_lengths, moved.tgt_in)))
        columns = []
        for t, tokens in enumerate(moved.tgt_out.unbind(dim=1)):  # one position at a time: (B·T, V) could be huge
            gold = []
            for model, decoded, source in members:
                weights = None if decoded.weights is None else decoded.weights[:, t]
                log_probs = model.decoder.output.log_probs(decoded.features[:, t], weights, source)  # (B, V)
                gold.append(log_probs.gather(1, tokens.unsqueeze(1)))  # (B, 1)
            columns.append(torch.logsumexp(torch.stack(gold), dim=0) - math.log(len(gold)) if gold[1:] else gold[0])
        steps = torch.cat(columns, dim=1) * moved.tgt_valid  # (B, T)
        totals = steps.sum(dim=1)  # (B,)
        scores = normalise(totals, moved.tgt_valid.sum(dim=1), self.search)
        looks = [decoded.weights for _, decoded, _ in members if decoded.weights is not None]
        mean = (
            (looks[0] if len(looks) == 1 else torch.stack(looks).mean(dim=0)).float().cpu().numpy() if looks else None
        )
        by_token = steps.tolist()
        for row, (total, score) in enumerate(zip(totals.tolist(), scores.tolist(), strict=True)):
            num_src, num_tgt = int(batch.src_valid[row].sum()), int(batch.tgt_valid[row].sum())
            tgt_ids = tuple(batch.tgt_out[row, :num_tgt].tolist())
            yield Translation(
                text=self.target.decode(tgt_ids),
                score=score,
                log_prob=total,
                src_ids=tuple(batch.src[row, :num_src].tolist()),
                tgt_ids=tgt_ids,
                attention=None if mean is None else mean[row, :num_tgt, :num_src],
                tokens=tuple(self.target.pieces(tgt_ids)),
                token_log_probs=tuple(by_token[row][:num_tgt]),
            )

    @torch.inference_mode()
    def _search(
        self,
        sentences: list[list[int]],
        search: SearchConfig,
        num_best: int,
        banned: list[Pieces],
        each: list[Constraint] | None,
        numbers: list[int],
        attention: bool,
    ) -> list[list[Hypothesis]]:
        network = self.small_network if search.int8 else self.network
        network.eval()
        src, valid, lengths = collate_source(sentences)
        source = network.encode(src.to(self.device), valid.to(self.device), lengths)
        constraints = Constraints(source, search, banned, each)
        if search.sample:
            return sample(network, source, search, numbers, num_best, constraints, attention)
        if search.beam == 1 and num_best == 1 and constraints.required is None:
            return [[hypothesis] for hypothesis in greedy(network, source, search, constraints, attention)]
        return beam_search(network, source, search, num_best, constraints, attention)

    def _encode(
        self, lines: Sequence[str], longest: int, numbers: Sequence[int], side: Tokenizer | None = None
    ) -> list[list[int]]:
        sentences = (side or self.source).encode_all(lines)
        for number, sentence in zip(numbers, sentences, strict=True):
            if len(sentence) > longest:
                warnings.warn(
                    f"line {number} has {len(sentence):,} pieces; those after the first {longest:,} "
                    "(search.max_source) are left out.",
                    stacklevel=3,
                )
        return [sentence[:longest] for sentence in sentences]

    def _read_part(self, line: str, read: Sequence[int]) -> str:
        """The part of a line that the model reads: that of the pieces that were not cut off."""
        spans = self.source.encode_spans(line)[1]
        return line if len(spans) <= len(read) else line[: spans[len(read) - 1][1]]

    def _banned_pieces(self, phrases: tuple[str, ...]) -> list[Pieces]:
        if phrases not in self._banned:
            self._banned[phrases] = banned_pieces(self.target, phrases)
        return self._banned[phrases]

    def _translation(self, sentence: list[int], hypothesis: Hypothesis) -> Translation:
        tgt_ids = (*hypothesis.tokens, EOS)
        return Translation(
            text=self.target.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            src_ids=(*sentence, EOS),
            tgt_ids=tgt_ids,
            attention=hypothesis.weights,
            tokens=tuple(self.target.pieces(tgt_ids)),
            token_log_probs=hypothesis.token_log_probs,
        )

    def _replaced(self, line: str, found: Translation, banned: Collection[str]) -> Translation:
        if found.attention is None or UNK not in found.tgt_ids:
            return found
        given = line, found.tgt_ids[:-1], found.attention, banned
        return replace(found, text=replace_unknown(self.source, self.target, *given))

    def _empty(self) -> Translation:
        attention = None if self.model.decoder.attention is None else np.ones((1, 1), dtype=np.float32)
        return Translation("", 0.0, 0.0, (EOS,), (EOS,), attention, tuple(self.target.pieces([EOS])), (0.0,))


def _check(search: SearchConfig, num_best: int, required: Sequence[Sequence[str]] | None) -> None:
    """Refuse settings that cannot work, before the first sentence."""
    assert num_best >= 1
    both = sorted({word for words in required or () for word in words if word} & set(search.banned))
    if both:
        raise ConfigError(f"{both[0]!r} is required and banned: choose one.")
    try:
        check_search(search, required is not None)
    except ValueError as error:
        raise ConfigError(f"{error}.") from None
    if num_best > search.beam and not search.sample:
        raise ConfigError(
            f"search.beam = {search.beam} finds {search.beam} translations at most, but {num_best} are wanted. "
            "Raise search.beam (--beam) or lower --nbest."
        )


def _together(models: Sequence[Seq2Seq]) -> SearchModel[Any, Any]:
    return Ensemble(models) if len(models) > 1 else models[0]


def batch_rows(sentences: Sequence[Sequence[int]], search: SearchConfig, elements: int) -> list[NDArray[np.int64]]:
    """Batches of sentences of similar length, long ones first; empty sentences are left out.

    `elements` is the size of one sentence's part of the widest table of a step: its rows times the vocabulary.
    """
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    most = max(1, MOST_ELEMENTS // elements)
    batches = token_batches(lengths, search.batch_tokens, order[lengths[order] > 1])
    return [rows[begin : begin + most] for rows in batches for begin in range(0, len(rows), most)]
