"""Training of alignment heads: two frozen runs that translate into each other's source teach each other's head.

A head learns the symmetrised links of both runs' attention and of a lexicon, and to agree with the other head. Letters:
those of `head_data.py`.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from translate.alignment.extract import near_diagonal
from translate.alignment.formats import FloatArray, Link, read_alignments
from translate.alignment.symmetrize import agreement, symmetrize, turned
from translate.checkpoint import Run
from translate.data.batches import BatchOrder, Rows
from translate.decoding.aligner import AlignSettings, check_attention, choose_shift
from translate.decoding.heads import inputs_of
from translate.decoding.translator import Translator
from translate.errors import DataError, NumericalError, Stopped
from translate.models.alignment_head import AlignmentHead, HeadInputs, HeadSizes, shifted
from translate.training.head_data import FEWEST_PAIRS, HeadBatch, HeadPairs, Side, read_text
from translate.training.lexicon import Lexicon, WordPair, learn_lexicon
from translate.training.logging import Reporter
from translate.training.signals import StopSignals

MOST_HELD_OUT = 500  # pairs; a tenth of a small text
WARMUP = 50  # updates
MAX_NORM = 1.0  # of the gradient
UNKNOWN = 1e-3  # how likely a translation is that the lexicon does not know, and a word of no word
_TINY = 1e-9  # keeps logarithms finite


@dataclass(frozen=True)
class HeadSettings:
    """How heads are trained."""

    width: int = 128
    steps: int = 2000
    minutes: float | None = None
    rounds: int = 1
    """From the second on, the links are those of the heads of the round before."""
    agreement: float = 0.5
    """Weight of the agreement of both heads."""
    null: float = 0.5
    """Weight of what is taught of a word without a link: that it has none."""
    learning_rate: float = 1e-3
    batch_tokens: int = 2000
    valid_every: int = 100
    patience: int = 5
    """Validations without a better loss until a round ends."""
    pairs: int = 100_000
    seed: int = 1
    method: str = "grow-diag"
    lexicon: bool = False
    """Whether a lexicon of the text has a say in the links."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How links are read; a shift of the attention included."""


# -- the loss ----------------------------------------------------------------------------------------------------------


def link_targets(links: Sequence[Sequence[Link]], sizes: Sequence[tuple[int, int]], null: float) -> Tensor:
    """What the words of a batch's targets should look at: (B, J, I + 1).

    A word looks at all its links alike. One without any looks at no word, the last column, and counts `null`.
    """
    most_src, most_tgt = (max(size[side] for size in sizes) for side in (0, 1))
    targets = np.zeros((len(sizes), most_tgt, most_src + 1), np.float32)
    for row, (some, (_, num_tgt)) in enumerate(zip(links, sizes, strict=True)):
        for link in some:
            targets[row, link.target, link.source] = 1.0
        counts = targets[row].sum(axis=1, keepdims=True)  # (J, 1)
        targets[row] /= np.maximum(counts, 1.0)
        targets[row, :num_tgt, -1] = np.where(counts[:num_tgt, 0] > 0, 0.0, null)
    return torch.from_numpy(targets)


def link_loss(words: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of word probabilities with their links, a word: both (B, J, I + 1)."""
    return -(targets * (words + _TINY).log()).sum() / targets.sum().clamp(min=_TINY)


def agreement_loss(there: Tensor, back: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """How unlikely it is that both heads say the same of a word: there (B, J, I + 1), back (B, I, J + 1).

    Of target word j that is Σ_i A_ji B_ij, and if it has no link, A_j0 Π_i (1 − B_ij): no source word looks at it. Of
    source words likewise. The mean of −log over all words.
    """
    ours, theirs = there[..., :-1], back[..., :-1].transpose(1, 2)  # (B, J, I) both
    same = ours * theirs
    not_ours, not_theirs = ((-one.clamp(max=1 - 1e-6)).log1p() for one in (ours, theirs))
    of_tgt = same.sum(dim=2) + there[..., -1] * not_theirs.sum(dim=2).exp()  # (B, J)
    of_src = same.sum(dim=1) + back[..., -1] * not_ours.sum(dim=1).exp()  # (B, I)
    total = there.new_zeros(())
    for side, of_words in ((0, of_src), (1, of_tgt)):
        counts = torch.tensor([size[side] for size in sizes], device=there.device)
        valid = torch.arange(of_words.size(1), device=there.device) < counts.unsqueeze(1)
        total = total - (of_words + _TINY).log().masked_fill(~valid, 0.0).sum()
    return total / sum(map(sum, sizes))


# -- the links ---------------------------------------------------------------------------------------------------------


def lexical_weights(lexicon: Lexicon, words: Sequence[WordPair]) -> tuple[Tensor, Tensor]:
    """How likely each word of a batch is the translation of each of the other side: (B, J, I + 1), (B, I, J + 1)."""
    most_src, most_tgt = (max(len(pair[side]) for pair in words) for side in (0, 1))
    there = np.full((len(words), most_tgt, most_src + 1), UNKNOWN, np.float32)
    back = np.full((len(words), most_src, most_tgt + 1), UNKNOWN, np.float32)
    for row, (src, tgt) in enumerate(words):
        of_tgt, of_src = lexicon.look_up(src, tgt)  # (J, I) both
        there[row, : len(tgt), : len(src)] += of_tgt
        back[row, : len(src), : len(tgt)] += of_src.T
    return torch.from_numpy(there), torch.from_numpy(back)


def _lexicon(pairs: HeadPairs, reporter: Reporter) -> Lexicon:
    begin = time.monotonic()
    lexicon = learn_lexicon(pairs.words(row) for row in range(len(pairs)))
    reporter.say(
        f"A lexicon of {len(lexicon.src_ids):,} source words, {len(lexicon.tgt_ids):,} target words and "
        f"{len(lexicon.keys):,} translations, learnt in {time.monotonic() - begin:.0f} s."
    )
    return lexicon


def links_of(words: FloatArray, sizes: Sequence[tuple[int, int]], settings: AlignSettings) -> list[list[Link]]:
    """Read links off the word weights of a batch (B, J, I + 1), of which each pair uses its own words."""
    found = []
    for matrix, (num_src, num_tgt) in zip(words, sizes, strict=True):
        own = matrix[:num_tgt][:, [*range(num_src), -1]]
        found.append(settings.extraction.links(near_diagonal(own, settings.extraction.diagonal)))
    return found


class Heads(torch.nn.Module):
    """The heads of both directions."""

    def __init__(self, forward: Translator, backward: Translator, width: int) -> None:
        super().__init__()
        self.there = AlignmentHead(HeadSizes.of(forward.model, width))
        self.back = AlignmentHead(HeadSizes.of(backward.model, width))

    def forward(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """Word probabilities of both directions: (B, J, I + 1), (B, I, J + 1)."""
        return batch.there.by_word(self.there(inputs[0])), batch.back.by_word(self.back(inputs[1]))


@dataclass(frozen=True)
class Validation:
    """How heads do on held-out pairs."""

    loss: float
    agreement: float
    """Of the links of both heads."""


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
            self.train.there.src_lengths, self.train.there.tgt_lengths, self.settings.batch_tokens, self.settings.seed
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
        """Up, then down to nothing by the end of the round, or of the minutes if these come first."""
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
                f"The heads' loss is {value} after {self.step} updates. Try a smaller --learning-rate."
            )
        optimizer.step()
        self.tokens += batch.there.batch.num_tokens + batch.back.batch.num_tokens
        return value

    def _loss(self, batch: HeadBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and the word probabilities of both heads."""
        inputs = self._inputs(batch)
        targets = self._targets(batch, inputs)
        there, back = self.heads(batch, inputs)
        loss = link_loss(there, targets[0]) + link_loss(back, targets[1])
        if self.settings.agreement:
            loss = loss + self.settings.agreement * agreement_loss(there, back, batch.sizes)
        return loss, there, back

    def _inputs(self, batch: HeadBatch) -> tuple[HeadInputs, HeadInputs]:
        forward, backward = self.translators
        return inputs_of(forward.model, batch.there.batch), inputs_of(backward.model, batch.back.batch)

    @torch.no_grad()
    def _targets(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """The links that are given, or those of both runs joined, as targets of either head."""
        sizes, turned_sizes = batch.sizes, [(num_tgt, num_src) for num_src, num_tgt in batch.sizes]
        links = batch.links
        if links is None:
            settings = self.settings.align
            ours, theirs = self._taught(batch, inputs)
            there = links_of(ours.cpu().numpy(), sizes, settings)
            back = links_of(theirs.cpu().numpy(), turned_sizes, settings)
            links = [symmetrize(a, turned(b), self.settings.method) for a, b in zip(there, back, strict=True)]
        targets = link_targets(links, sizes, self.settings.null)
        turned_targets = link_targets([turned(some) for some in links], turned_sizes, self.settings.null)
        return targets.to(self.device), turned_targets.to(self.device)

    def _taught(self, batch: HeadBatch, inputs: tuple[HeadInputs, HeadInputs]) -> tuple[Tensor, Tensor]:
        """What the links are read from, in words: the heads of the round before, or attention as a lexicon's prior."""
        if self.teacher is not None:
            ours, theirs = self.teacher(batch, inputs)
            return ours, theirs
        shift = self.settings.align.extraction.shift
        ours, theirs = _attention(batch.there, inputs[0], shift), _attention(batch.back, inputs[1], shift)
        if self.lexicon is None:
            return ours, theirs
        there, back = lexical_weights(self.lexicon, batch.words)
        return scaled(ours * there.to(self.device)), scaled(theirs * back.to(self.device))

    @torch.no_grad()
    def _validate(self, number: int, losses: Sequence[float] = ()) -> bool:
        """Score the heads on held-out pairs and keep them if they are the best of the round so far."""
        order = BatchOrder(
            self.held_out.there.src_lengths, self.held_out.there.tgt_lengths, self.settings.batch_tokens, 0
        )
        total = count = 0.0
        ours, theirs = list[list[Link]](), list[list[Link]]()
        plain = AlignSettings()
        for rows in order.epoch(0):
            batch = self.held_out.batch(rows, self.device)
            loss, there, back = self._loss(batch)
            total, count = total + float(loss) * len(rows), count + len(rows)
            ours += links_of(there.cpu().numpy(), batch.sizes, plain)
            theirs += map(turned, links_of(back.cpu().numpy(), [size[::-1] for size in batch.sizes], plain))
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


def _attention(side: Side, inputs: HeadInputs, shift: int) -> Tensor:
    return side.by_word(shifted(inputs.weights, shift, inputs.tgt_lengths))


def scaled(words: Tensor) -> Tensor:
    """Rows that sum to one, those of zeros excepted: (B, J, I + 1)."""
    return words / words.sum(dim=2, keepdim=True).clamp(min=_TINY)


def _endless(order: BatchOrder) -> Iterator[Rows]:
    for number in itertools.count():
        yield from order.epoch(number)


# -- the whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadFiles:
    """What heads are trained on, where it is not the pairs that the run was trained on."""

    source: Path | None = None
    target: Path | None = None
    links: Path | None = None


def train_heads(
    forward: Translator,
    backward: Translator,
    runs: tuple[Run, Run],
    files: HeadFiles,
    settings: HeadSettings,
    shift: int | None,
    reporter: Reporter,
) -> Validation:
    """Train the heads of two runs and save each in its run; `shift` None is chosen by agreement on held-out pairs."""
    for translator in (forward, backward):
        check_attention(translator)
    checkpoints = [run.best() for run in runs]
    config = runs[0].config()
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    with StopSignals() as signals, runs[0].lock(), runs[1].lock():
        text = read_text(runs[0], files.source, files.target, settings.pairs, settings.seed)
        links = None if files.links is None else _read_links(files.links, text.lines)
        if links is not None:  # they number words between spaces
            settings = replace(settings, align=replace(settings.align, source_spans=False, target_spans=False))
        max_length = config.data.max_length or forward.search.max_source
        pairs = HeadPairs(forward, backward, text, settings.align, max_length, links)
        if len(pairs) < FEWEST_PAIRS:
            raise DataError(
                f"{len(pairs)} pairs to learn from, {pairs.left_out} left out as empty or over {max_length} pieces; "
                f"at least {FEWEST_PAIRS} are needed. Give more text with --source and --target."
            )
        mixed = np.random.Generator(np.random.PCG64([settings.seed, len(pairs)])).permutation(len(pairs))
        num_held_out = min(MOST_HELD_OUT, len(pairs) // 10)
        held_out, train = pairs.part(mixed[:num_held_out]), pairs.part(mixed[num_held_out:])
        reporter.say(f"{len(train):,} pairs to learn from, {len(held_out):,} held out, {pairs.left_out:,} left out.")
        if links is None:
            settings = _with_shift(forward, backward, held_out, settings, shift, reporter)
        trainer = HeadTrainer(forward, backward, train, held_out, settings, reporter, signals)
        signals.can_save = True
        found = trainer.fit()
        note = {
            "settings": asdict(settings),
            "updates": trainer.step,
            "held_out": asdict(found),
            "links": None if files.links is None else files.links.name,
        }
        for run, checkpoint, head in zip(runs, checkpoints, (trainer.heads.there, trainer.heads.back), strict=True):
            run.save_head(head, checkpoint, note)
        if signals.received is not None:
            raise Stopped(
                signals.received,
                f"Stopped after update {trainer.step}; the heads as they were at their best are saved in "
                f"{runs[0].head_path} and {runs[1].head_path}.",
            )
    return found


def _with_shift(
    forward: Translator,
    backward: Translator,
    held_out: HeadPairs,
    settings: HeadSettings,
    shift: int | None,
    reporter: Reporter,
) -> HeadSettings:
    if shift is None:
        text = held_out.text
        shift, found = choose_shift(forward, backward, text.sources, text.targets, settings.align)
        shown = ", ".join(f"{k}: {found[k]:.3f}" for k in sorted(found))
        reporter.say(f"shift {shift}, by agreement of both runs' attention on held-out pairs ({shown})")
    extraction = replace(settings.align.extraction, shift=shift)
    return replace(settings, align=replace(settings.align, extraction=extraction))


def _read_links(path: Path, lines: Sequence[int]) -> Mapping[int, Sequence[Link]]:
    """The given links of the lines of a text."""
    last = max(lines, default=0)
    found = read_alignments(path).filled(last).sentences
    if len(found) < last:
        raise DataError(
            f"--links {path} has {len(found):,} lines, but the text has a pair at line {last:,}: line N of each must "
            "belong together, empty where there is no link."
        )
    return {line: sorted(found[line - 1].possible) for line in lines}
