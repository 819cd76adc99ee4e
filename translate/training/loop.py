"""The training loop: update, validate, save, stop, and resume exactly.

All randomness of an update is a function of (seed, update), and the batches are one of (seed, epoch, position). So a
checkpoint holds no generator states, and a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from translate.data.batches import Batch, BatchOrder, BatchStream
from translate.data.spelling import Spelling
from translate.device import Precision, resolve_device
from translate.distributed import ALONE, World
from translate.errors import NumericalError, Stopped
from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import fill
from translate.run.sealed_files import write_file
from translate.training.budget import Budget
from translate.training.compiling import compile_step
from translate.training.environment import describe_start
from translate.training.guided import Guide
from translate.training.logging import MetricsLog, Reporter, minutes
from translate.training.objective import Objective
from translate.training.optim import build_optimizer, learning_rate
from translate.training.prepare import TrainingInputs
from translate.training.progress import End, Progress
from translate.training.signals import StopSignals
from translate.training.snapshots import Snapshots, weights_of
from translate.training.teacher_forcing import ratio_at
from translate.training.validation import WORST, Interrupted, Validated, Validation
from translate.training.warm_start import start_from_other_run, start_from_vectors

MOST_SKIPPED = 10  # updates without a finite gradient in a row


class Trainer:
    """Trains one run."""

    def __init__(self, inputs: TrainingInputs, reporter: Reporter, signals: StopSignals, world: World = ALONE) -> None:
        self.inputs, self.config, self.run, self.world = inputs, inputs.config, inputs.run, world
        self.settings = inputs.config.train
        self.reporter, self.signals = reporter, signals
        self.device = world.device(resolve_device(self.settings.device))
        self.precision = Precision(self.settings.precision, self.device)
        torch.set_num_threads(self.settings.threads)
        torch.manual_seed(self.settings.seed)
        self.model = Seq2Seq(self.config.model, inputs.source.size, inputs.target.size, self.config.data.max_length).to(
            self.device
        )
        self.optimizer = build_optimizer(self.model, self.settings)
        if self.settings.compile:
            outcome = compile_step(self.model.decoder)
            if world.leads:
                reporter.say(outcome)
        self.objective = world.wrap(Objective(self.model, self.config))
        links = self.settings.guided.links
        self.guide = None if links is None else Guide(Path(links), inputs.train, inputs.source, inputs.target)
        self.validation = Validation(self.model, inputs, self.precision, self.device, signals)
        self.snapshots = Snapshots(self.run, self.model, self.optimizer, self.precision, self.settings)
        self.progress = self._restored()
        self.budget = Budget(self.settings, self.progress.seconds)
        self.stop: int | None = None  # the signal that all processes have agreed to stop for
        self.trained = 0.0  # seconds of training and validation, once it is over
        self.log = None
        if world.leads:
            self.log = MetricsLog(
                self.run.path, self.config.logging.tensorboard, self.progress.step, self.progress.last_validated
            )

    # -- the run ------------------------------------------------------------------------------------------------------

    def fit(self) -> None:
        """Train until the budget is used up, patience runs out, or a signal comes."""
        self._say_start()
        with (
            self._open_batches() as batches,
            self.reporter.start(self.budget.done(self.progress.step), self.budget.total),
        ):
            while True:
                if self._is_validation_due():  # also after a stop that interrupted it
                    self._validate()
                    self._stop_if_asked()
                if self._is_over():
                    break
                self._update(batches)
                self._stop_if_asked()
            if self.world.leads:
                self._try_average()
            self.trained = self.budget.seconds()

    @contextmanager
    def _open_batches(self) -> Iterator[BatchStream]:
        """The batches of all epochs from the current position; starts the clock and lets a stop save a checkpoint."""
        data, settings, tokenizer = self.inputs.train, self.settings, self.config.tokenizer
        order = BatchOrder(
            data.src_lengths, data.tgt_lengths, settings.batch_tokens, settings.seed, self.inputs.weights
        )
        respell = None
        if tokenizer.nbest > 1:
            respell = Spelling(
                self.inputs.source, self.inputs.target, tokenizer.nbest, tokenizer.nbest_alpha, settings.seed,
                self.config.data.max_length,
            )  # fmt: skip
        stream = BatchStream(
            data, order, self.progress.epoch, self.progress.position, self.world.rank, self.world.size,
            self.device.type == "cuda", respell,
        )  # fmt: skip
        self.signals.can_save = True
        self.budget.start()
        self.budget.clock = self.world.from_leader(self.budget.seconds())
        try:
            yield stream
        finally:
            stream.close()
            if self.log is not None:
                self.log.close()

    def _is_validation_due(self) -> bool:
        progress = self.progress
        on_time = self.budget.is_used_up(progress.step) or progress.step % self.settings.valid_every == 0
        return on_time and progress.step > progress.last_validated

    def _is_over(self) -> bool:
        """Whether the budget is used up or patience has run out."""
        patience = self.settings.patience
        out_of_patience = patience > 0 and self.progress.worse_in_a_row >= patience
        return out_of_patience or self.budget.is_used_up(self.progress.step)

    def note_end(self, tested: bool) -> None:
        """Record that averaging is done, and whether the test set was scored with the best weights."""
        progress = self.progress
        end = End(progress.step, progress.best_name, progress.best_score, self.trained, tested)
        write_file(self.run.path / "finished.json", json.dumps(asdict(end)).encode())

    # -- one update ---------------------------------------------------------------------------------------------------

    def _update(self, stream: BatchStream) -> None:
        """One step of the optimizer: the loss summed over all target tokens of the update, divided by their number."""
        began = time.monotonic()
        self.model.train()
        batches = [next(stream) for _ in range(self.settings.accumulate)]
        num_tokens = sum(batch.num_tokens for batch in batches)
        share = self.budget.used(self.progress.step)
        rate = self._set_learning_rate(share)
        expected_steps = self.budget.expected_steps(self.progress.step)
        ratio = ratio_at(self.settings.teacher_forcing, share, expected_steps)
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.device)
        for index, batch in enumerate(batches):
            torch.manual_seed(self._seed(index))
            with self._synchronised(index == len(batches) - 1):
                guide = None if self.guide is None else self.guide.targets(batch).to(self.device)
                with self.precision.autocast():
                    smoothed, extra = self.objective(batch.to(self.device), ratio, share, self.progress.rewards, guide)
                # Gradients are averaged over processes, but the update divides the sum over all tokens by their number.
                scaled = (smoothed + extra) * (self.world.size / num_tokens)
                self.precision.scaler.scale(scaled).backward()
            loss += smoothed.detach() / num_tokens
        self.precision.scaler.unscale_(self.optimizer)
        limit = self.settings.clip or float("inf")
        found = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        norm, value = torch.stack([found, loss]).tolist()  # the one place where an update waits for its device
        value = self._agree(value)
        if np.isfinite(norm) and np.isfinite(value):
            self.progress.skipped_in_a_row = 0
        else:
            self._skip(batches, value, norm)
            self.optimizer.zero_grad(set_to_none=True)
        self.precision.scaler.step(self.optimizer)
        self.precision.scaler.update()
        self.progress.step += 1
        if self.snapshots.ema is not None and not self.progress.skipped_in_a_row:
            self.snapshots.ema.update(self.progress.step - self.progress.skipped)
        self.progress.epoch, self.progress.position = stream.epoch, stream.position
        self._record(value, norm, rate, ratio, num_tokens, time.monotonic() - began)

    def _seed(self, index: int) -> int:
        """The seed for a batch of the update, in this process."""
        return _mixed_seed(self.settings.seed, self.progress.step, index * self.world.size + self.world.rank)

    def _synchronised(self, last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once per update, with its last batch."""
        if last or not isinstance(self.objective, DistributedDataParallel):
            return nullcontext()
        waiting: AbstractContextManager[None] = self.objective.no_sync()
        return waiting

    def _agree(self, loss: float) -> float:
        """Exchange between processes after an update: the loss, the scale of rewards, the time, and any stop."""
        rewards, size = self.progress.rewards, self.world.size
        asked, seconds = self.signals.received is not None, self.budget.seconds() if self.world.leads else 0.0
        loss, stopping, self.budget.clock, *scale = self.world.sums(
            loss, asked, seconds, rewards.mean, rewards.deviation, rewards.left
        )
        if size > 1:
            rewards.mean, rewards.deviation, rewards.left = (value / size for value in scale)
        self.stop = (self.signals.received or signal.SIGTERM) if stopping else None
        return loss

    def _set_learning_rate(self, share: float) -> float:
        rate = learning_rate(self.settings, self.progress.step, share, self.progress.reductions)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _skip(self, batches: list[Batch], loss: float, norm: float) -> None:
        """Skip an update that is not finite; raise an error after too many in a row."""
        self.progress.skipped += 1
        self.progress.skipped_in_a_row += 1
        if self.precision.scaler.is_enabled() and self.progress.skipped_in_a_row < MOST_SKIPPED:
            return  # the loss scale was too high: the scaler finds the right one this way
        lines = np.concatenate([self.inputs.train.lines[batch.rows] for batch in batches])
        shown = ", ".join(map(str, sorted(lines.tolist())[:20])) + (" …" if len(lines) > 20 else "")
        message = (
            f"update {self.progress.step + 1} was skipped: loss {loss}, gradient norm {norm}. "
            f"Its batch holds these lines of the training data: {shown}."
        )
        if self.progress.skipped_in_a_row >= MOST_SKIPPED:
            raise NumericalError(
                f"{message} {MOST_SKIPPED} updates in a row were skipped. Lower train.learning_rate or train.clip, "
                "or use train.precision=fp32, and continue from the last checkpoint with --resume."
            )
        self.reporter.say(f"Warning: {message}")

    def _record(self, loss: float, norm: float, rate: float, ratio: float, num_tokens: int, seconds: float) -> None:
        """Add an update to the sums, and write them every `logging.every` updates."""
        window, step = self.progress.window, self.progress.step
        sums = {"loss": loss * num_tokens, "tokens": num_tokens, "norm": norm, "updates": 1, "seconds": seconds}
        if self.progress.skipped_in_a_row:  # the update was skipped, and one NaN would spoil the whole window
            sums = dict.fromkeys(sums, 0.0) | {"seconds": seconds}
        for key, value in sums.items():
            window[key] = window.get(key, 0.0) + value
        mean_loss = window["loss"] / max(window["tokens"], 1.0)
        speed = window["tokens"] / max(window["seconds"], 1e-9)
        left = self.budget.seconds_left(step)
        self.reporter.advance(self.budget.done(step), mean_loss, speed, left)
        if step % self.config.logging.every:
            return
        if self.log is None:
            window.clear()
            return
        self.log.write(
            "train",
            step,
            loss=mean_loss,
            gradient_norm=window["norm"] / max(window["updates"], 1.0),
            learning_rate=rate,
            teacher_forcing=ratio,
            skipped=self.progress.skipped,
            tokens_per_second=round(speed, 1),
            seconds=round(self.budget.seconds(), 1),
        )
        if not self.reporter.has_bar:
            self.reporter.say(f"update {step}: loss {mean_loss:.3f}, {speed:,.0f} tokens/s, {minutes(left)} left")
        window.clear()

    # -- validation and saving ----------------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Validate and save on the first process, and tell the others what it found."""
        if self.world.leads:
            self._validate_and_save()
        told = asdict(self.progress), self.signals.received, self.budget.seconds()
        state, self.stop, self.budget.clock = self.world.from_leader(told)
        if not self.world.leads:
            self.progress = Progress.from_state(state)

    def _validate_and_save(self) -> None:
        ema = self.snapshots.ema
        try:
            with nullcontext() if ema is None else ema.in_place():
                found = self.validation.run()
        except Interrupted:
            return  # the loop saves and stops; the resumed run validates first
        improved = self._take_in(found)
        step, seconds = self.progress.step, self.budget.seconds()
        assert self.log is not None
        self.log.write("valid", step, **found.scores, seconds=round(seconds, 1))
        self.reporter.say(f"validation after {step}: {found}{' (best so far)' if improved else ''}")
        self.validation.show_samples(found, step, self.reporter, self.log.writer)
        self.snapshots.save(self.progress, self.budget.seconds())

    def _take_in(self, found: Validated) -> bool:
        """Add the score to the progress; returns whether it is the best so far."""
        progress, score = self.progress, found.score
        name = f"step-{progress.step:08d}"
        improved = bool(np.isfinite(score)) and (progress.best_score is None or score > progress.best_score)
        progress.last_validated = progress.step
        progress.history.append((name, score))
        if improved:
            progress.best_name, progress.best_score = name, score
        progress.worse_in_a_row = 0 if improved else progress.worse_in_a_row + 1
        if self.settings.schedule == "plateau":
            progress.plateau_worse = 0 if improved else progress.plateau_worse + 1
            if progress.plateau_worse >= self.settings.plateau_patience:
                progress.plateau_worse = 0
                progress.reductions += 1
        return improved

    def _try_average(self) -> None:
        """Average the weights of several checkpoints; the average becomes `best` where it scores better."""
        progress, names = self.progress, sorted(self.snapshots.names_to_average(self.progress))
        if len(names) < 2:
            return
        kept, weights = weights_of(self.model), self.snapshots.average_of(names)
        fill(self.model, weights)
        try:
            found = self.validation.run()
        except Interrupted:
            self.stop = self.signals.received
            self._stop_if_asked()
            raise
        better = found.score > (WORST if progress.best_score is None else progress.best_score)
        verdict = "better, so it is kept" if better else "not better, so it is not used"
        self.reporter.say(f"average of {len(names)} checkpoints: {found}; {verdict}")
        if better:
            progress.best_name, progress.best_score = f"average-{progress.step:08d}", found.score
            self.snapshots.save_average(weights, names, progress, self.budget.seconds())
        fill(self.model, kept)

    # -- stopping and resuming ----------------------------------------------------------------------------------------

    def _stop_if_asked(self) -> None:
        if self.stop is None:
            return
        if self.world.leads and self.snapshots.saved != self.progress.step:
            self.snapshots.save(self.progress, self.budget.seconds())
        raise Stopped(self.stop, f"Stopped after update {self.progress.step}; the checkpoint is saved.")

    def _restored(self) -> Progress:
        """Resume from the newest valid checkpoint, or start anew, from given weights if there are any."""
        checkpoint = self.run.latest()
        if checkpoint is None:
            start_from_other_run(self.model, self.inputs, self.reporter.say)
            start_from_vectors(self.model, self.inputs, self.reporter.say)
            self.snapshots.start_average()
            return Progress()
        progress = self.snapshots.restore(checkpoint)
        if self.world.leads:
            self.snapshots.point(checkpoint, progress)  # an old process may have been killed before it set the names
        self.reporter.say(f"Going on from {checkpoint.path}.")
        return progress

    def _say_start(self) -> None:
        """Report what is trained, and record the machine in the run."""
        config = self.config
        self.reporter.say(
            f"Training {self.model.num_parameters:,} parameters on {self.device.type} in {self.precision.name} with "
            f"{self.settings.threads} threads; vocabulary {self.inputs.source.size:,} and {self.inputs.target.size:,}."
        )
        if not config.model.attends:
            kind = config.model.decoder.kind
            self.reporter.say(f"The {kind} decoder has no attention: [model.attention] is ignored.")
        if self.settings.steps is None:
            self.reporter.say(
                "The budget is in minutes: the schedule follows the clock, so a resumed run is not bit-equal."
            )
        if self.world.leads:
            start = describe_start(self.device, self.precision.name, self.settings.threads)
            starts = [*self.run.environment().get("starts", []), {"update": self.progress.step, **start}]
            self.run.note_environment(starts=starts)


def _mixed_seed(*numbers: int) -> int:
    """One 63-bit seed from several numbers, well mixed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
