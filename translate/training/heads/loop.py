"""The loop that trains the heads of both directions."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from translate.alignment.formats import Link
from translate.alignment.symmetrize import agreement, symmetrize, transposed
from translate.data.batches import BatchOrder, Rows
from translate.decoding.aligner import AlignSettings
from translate.decoding.heads import inputs_of
from translate.decoding.translator import Translator
from translate.errors import NumericalError
from translate.models.alignment_head import AlignmentHead, HeadInputs, HeadSizes, shifted
from translate.training.heads.lexicon import Lexicon, learn_lexicon
from translate.training.heads.links import lexical_weights, links_of, scaled
from translate.training.heads.losses import agreement_loss, link_loss, link_targets
from translate.training.heads.pairs import HeadBatch, HeadPairs, Side
from translate.training.heads.settings import HeadSettings
from translate.training.logging import Reporter
from translate.training.signals import StopSignals

WARMUP = 50  # updates
MAX_NORM = 1.0  # of the gradient


class Heads(torch.nn.Module):
    """The heads of both directions."""

    def __init__(self, forward: Translator, backward: Translator, width: int) -> None:
        super().__init__()
        self.forward_head = AlignmentHead(HeadSizes.of(forward.model, width))
        self.backward_head = AlignmentHead(HeadSizes.of(backward.model, width))

    def forward(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """Word probabilities of both directions: (B, J, I + 1), (B, I, J + 1)."""
        forward, backward = self.forward_head(inputs[0]), self.backward_head(inputs[1])
        return batch.forward.by_word(forward), batch.backward.by_word(backward)

    @property
    def both(self) -> tuple[AlignmentHead, AlignmentHead]:
        return self.forward_head, self.backward_head


@dataclass(frozen=True)
class Validation:
    """Scores of heads on held-out pairs."""

    loss: float
    agreement: float
    """Agreement of the links of both heads."""


class HeadTrainer:
    """Trains the heads of two runs."""

    def __init__(
        self,
        forward: Translator,
        backward: Translator,
        train: HeadPairs,
        held_out: HeadPairs,
        settings: HeadSettings,
        reporter: Reporter,
        signals: StopSignals,
    ) -> None:
        self.translators = (forward, backward)
        for translator in self.translators:
            translator.model.eval()
        self.train, self.held_out, self.settings = train, held_out, settings
        self.reporter, self.signals = reporter, signals
        self.lexicon = _lexicon(train, reporter) if settings.lexicon else None
        self.device = forward.device
        torch.manual_seed(settings.seed)
        self.heads = Heads(forward, backward, settings.width).to(self.device)
        self.teacher: Heads | None = None  # None: attention
        self.step = 0
        self.begin = time.monotonic()
        self.best: tuple[float, Heads, Validation] | None = None
        self.tokens = 0

    def fit(self) -> Validation:
        """Train all rounds, or until a signal comes; `heads` are then the best ones."""
        order = BatchOrder(
            self.train.forward_pairs.src_lengths,
            self.train.forward_pairs.tgt_lengths,
            self.settings.batch_tokens,
            self.settings.seed,
        )
        batches = _endless(order)
        with self.reporter.start(0, self.settings.steps * self.settings.rounds):
            for number in range(self.settings.rounds):
                if number and self._ends():
                    break
                if number:
                    self.teacher = copy.deepcopy(self.heads)
                self._round(batches, number)
                assert self.best is not None
                self.heads = self.best[1]
        assert self.best is not None
        return self.best[2]

    def _round(self, batches: Iterator[Rows], number: int) -> None:
        optimizer = torch.optim.Adam(self.heads.parameters(), lr=self.settings.learning_rate)
        start, worse, losses = self.step, 0, list[float]()
        self.best = None
        self._validate(number)
        while self.step - start < self.settings.steps and worse < self.settings.patience and not self._ends():
            rate = self.settings.learning_rate * self._rate(self.step - start)
            for group in optimizer.param_groups:
                group["lr"] = rate
            losses.append(self._update(next(batches), optimizer))
            self.step += 1
            self._tell(losses)
            if (self.step - start) % self.settings.valid_every == 0:
                worse = 0 if self._validate(number, losses) else worse + 1
                losses.clear()
        if losses:
            self._validate(number, losses)

    def _rate(self, step: int) -> float:
        """Share of the peak rate: rises, then falls to zero at the end of the round or of the minutes."""
        used = step / self.settings.steps
        if self.settings.minutes is not None:
            used = max(used, self._seconds() / (60 * self.settings.minutes))
        return min(1.0, (step + 1) / WARMUP) * max(0.0, 1.0 - used)

    def _update(self, rows: Rows, optimizer: torch.optim.Optimizer) -> float:
        batch = self.train.batch(rows, self.device)
        loss = self._loss(batch)[0]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.heads.parameters(), MAX_NORM)
        value = float(loss.detach())
        if not np.isfinite(value) or not bool(norm.isfinite()):
            raise NumericalError(
                f"The loss of the heads is {value} after {self.step} updates. Try a smaller --learning-rate."
            )
        optimizer.step()
        self.tokens += batch.forward.batch.num_tokens + batch.backward.batch.num_tokens
        return value

    def _loss(self, batch: HeadBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and the word probabilities of both heads."""
        inputs = self._inputs(batch)
        targets = self._targets(batch, inputs)
        forward, backward = self.heads(batch, inputs)
        loss = link_loss(forward, targets[0]) + link_loss(backward, targets[1])
        if self.settings.agreement:
            loss = loss + self.settings.agreement * agreement_loss(forward, backward, batch.sizes)
        return loss, forward, backward

    def _inputs(self, batch: HeadBatch) -> tuple[HeadInputs, HeadInputs]:
        forward, backward = self.translators
        return inputs_of(forward.model, batch.forward.batch), inputs_of(backward.model, batch.backward.batch)

    @torch.no_grad()
    def _targets(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """Targets of both heads: the given links, or the joined links of both runs."""
        sizes, transposed_sizes = batch.sizes, [(num_tgt, num_src) for num_src, num_tgt in batch.sizes]
        links = batch.links
        if links is None:
            settings = self.settings.align
            ours, theirs = self._taught(batch, inputs)
            forward = links_of(ours.cpu().numpy(), sizes, settings)
            backward = links_of(theirs.cpu().numpy(), transposed_sizes, settings)
            links = [symmetrize(a, transposed(b), self.settings.method) for a, b in zip(forward, backward, strict=True)]
        targets = link_targets(links, sizes, self.settings.null)
        transposed_targets = link_targets([transposed(some) for some in links], transposed_sizes, self.settings.null)
        return targets.to(self.device), transposed_targets.to(self.device)

    def _taught(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """Word weights to extract links from: the previous round's heads, or attention, times a lexicon if any."""
        if self.teacher is not None:
            ours, theirs = self.teacher(batch, inputs)
            return ours, theirs
        shift = self.settings.align.extraction.shift
        ours, theirs = _attention(batch.forward, inputs[0], shift), _attention(batch.backward, inputs[1], shift)
        if self.lexicon is None:
            return ours, theirs
        forward, backward = lexical_weights(self.lexicon, batch.words)
        return scaled(ours * forward.to(self.device)), scaled(theirs * backward.to(self.device))

    @torch.no_grad()
    def _validate(self, number: int, losses: Sequence[float] = ()) -> bool:
        """Score the heads on held-out pairs and keep them if they are the best of the round so far."""
        order = BatchOrder(
            self.held_out.forward_pairs.src_lengths,
            self.held_out.forward_pairs.tgt_lengths,
            self.settings.batch_tokens,
            0,
        )
        total = count = 0.0
        ours, theirs = list[list[Link]](), list[list[Link]]()
        plain = AlignSettings()
        for rows in order.epoch(0):
            batch = self.held_out.batch(rows, self.device)
            loss, forward, backward = self._loss(batch)
            total, count = total + float(loss) * len(rows), count + len(rows)
            ours += links_of(forward.cpu().numpy(), batch.sizes, plain)
            theirs += map(transposed, links_of(backward.cpu().numpy(), [size[::-1] for size in batch.sizes], plain))
        found = Validation(total / count, agreement(ours, theirs))
        better = self.best is None or found.loss < self.best[0]
        if better:
            self.best = (found.loss, copy.deepcopy(self.heads), found)
        trained = f", training loss {np.mean(losses):.3f}" if losses else ""
        words = f"round {number + 1}, " if self.settings.rounds > 1 else ""
        self.reporter.say(
            f"{words}update {self.step}: held-out loss {found.loss:.3f}, agreement {found.agreement:.3f}{trained}"
            f"{', best' if better and losses else ''}"
        )
        return better

    def _tell(self, losses: Sequence[float]) -> None:
        seconds = self._seconds()
        share = self.step / (self.settings.steps * self.settings.rounds)
        if self.settings.minutes is not None:
            share = max(share, seconds / (60 * self.settings.minutes))
        self.reporter.advance(self.step, losses[-1], self.tokens / seconds, seconds / share - seconds)

    def _ends(self) -> bool:
        out_of_time = self.settings.minutes is not None and self._seconds() >= 60 * self.settings.minutes
        return out_of_time or self.signals.received is not None

    def _seconds(self) -> float:
        return time.monotonic() - self.begin


def _lexicon(pairs: HeadPairs, reporter: Reporter) -> Lexicon:
    begin = time.monotonic()
    lexicon = learn_lexicon(pairs.words(row) for row in range(len(pairs)))
    reporter.say(
        f"A lexicon of {len(lexicon.src_ids):,} source words, {len(lexicon.tgt_ids):,} target words and "
        f"{len(lexicon.keys):,} translations, learnt in {time.monotonic() - begin:.0f} s."
    )
    return lexicon


def _attention(side: Side, inputs: HeadInputs, shift: int) -> Tensor:
    return side.by_word(shifted(inputs.weights, shift, inputs.tgt_lengths))


def _endless(order: BatchOrder) -> Iterator[Rows]:
    for number in itertools.count():
        yield from order.epoch(number)
