"""The training loop: update, validate, save, stop, and go on as if nothing had happened.

All randomness of an update is a function of (seed, update), and the batches one of (seed, epoch, position), so a
checkpoint holds no generator states and a resumed run is bit for bit the run that never stopped.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from translate.checkpoint import Checkpoint, check_fit, fill, write_file
from translate.data.batches import Batch, BatchOrder, BatchStream, Respell, collate, token_batches
from translate.data.spelling import Spelling
from translate.decoding.translator import Translation, Translator
from translate.errors import NumericalError, RunError, Stopped, UserError
from translate.evaluation.metrics import quick_scores
from translate.models.seq2seq import Seq2Seq
from translate.training.averaging import MovingAverage, average_weights, named_raw, split_raw
from translate.training.compiling import compile_step
from translate.training.distributed import ALONE, World
from translate.training.environment import describe_start
from translate.training.guided import Guide
from translate.training.job import Job, other_run, start_vectors
from translate.training.logging import MetricsLog, Reporter, minutes
from translate.training.loss import sequence_loss
from translate.training.objective import Objective
from translate.training.optim import build_optimizer, learning_rate, optimizer_tensors, restore_optimizer
from translate.training.precision import Precision, resolve_device
from translate.training.progress import End, Progress, read_end
from translate.training.signals import StopSignals
from translate.training.teacher_forcing import ratio_at

MOST_SKIPPED = 10  # updates without a finite gradient in a row
WORST = -1e30  # the score of what is not a number: JSON has no infinity


class _Interrupted(Exception):
    """A stop was asked for in the middle of a validation."""


class Trainer:
    """One run being trained."""

    def __init__(self, job: Job, reporter: Reporter, signals: StopSignals, world: World = ALONE) -> None:
        self.job, self.config, self.run, self.world = job, job.config, job.run, world
        self.settings = job.config.train
        self.reporter, self.signals = reporter, signals
        self.device = world.device(resolve_device(self.settings.device))
        self.precision = Precision(self.settings.precision, self.device)
        torch.set_num_threads(self.settings.threads)
        torch.manual_seed(self.settings.seed)
        self.model = Seq2Seq(self.config.model, job.source.size, job.target.size, self.config.data.max_length).to(
            self.device
        )
        self.optimizer = build_optimizer(self.model, self.settings)
        if self.settings.compile:
            outcome = compile_step(self.model.decoder)
            if world.leads:
                reporter.say(outcome)
        self.objective = world.wrap(Objective(self.model, self.config))
        links = self.settings.guided.links
        self.guide = None if links is None else Guide(Path(links), job.train, job.source, job.target)
        self.progress = Progress()
        self.stop: int | None = None  # the signal that all processes have agreed to stop for
        self.ema: MovingAverage | None = None
        self.saved: int | None = None  # the update whose checkpoint this process has written or read
        greedily = self.config.search.model_copy(update={"beam": 1, "groups": 1, "sample": False, "int8": False})
        self.translator = Translator(self.model, job.source, job.target, greedily, self.device)
        self.started = time.monotonic()
        self.clock = 0.0  # seconds of training and validation up to this update, by the first process
        self.trained = 0.0  # the same once it is over
        self._restore()
        self.log = None
        if world.leads:
            self.log = MetricsLog(
                self.run.path, self.config.logging.tensorboard, self.progress.step, self.progress.last_validated
            )

    # -- the whole ----------------------------------------------------------------------------------------------------

    def fit(self) -> None:
        """Train until the budget is used up, patience is lost, or a signal comes."""
        self._say_start()
        if self.world.leads:
            start = describe_start(self.device, self.precision.name, self.settings.threads)
            starts = [*self.job.run.environment().get("starts", []), {"update": self.progress.step, **start}]
            self.job.run.note_environment(starts=starts)
        lengths = self.job.train.src_lengths, self.job.train.tgt_lengths
        order = BatchOrder(*lengths, self.settings.batch_tokens, self.settings.seed, self.job.weights)
        where = self.progress.epoch, self.progress.position
        pinned, shares = self.device.type == "cuda", (self.world.rank, self.world.size)
        stream = BatchStream(self.job.train, order, *where, *shares, pinned, self._respell())
        self.signals.can_save = True
        self.started = time.monotonic()
        self.clock = self.world.from_leader(self._seconds())
        total = float(self.settings.steps or self.settings.minutes or 0)
        try:
            with self.reporter.start(self._done(), total):
                while not self._over():
                    self._update(stream)
                    self._stop_if_asked()
                if self.world.leads:
                    self._average()
            self.trained = self._seconds()
        finally:
            stream.close()
            if self.log is not None:
                self.log.close()

    def _respell(self) -> Respell | None:
        tokenizer = self.config.tokenizer
        if tokenizer.nbest == 1:
            return None
        return Spelling(
            self.job.source,
            self.job.target,
            tokenizer.nbest,
            tokenizer.nbest_alpha,
            self.settings.seed,
            self.config.data.max_length,
        )

    def note_end(self, tested: bool) -> None:
        """Note that the average is made, and whether the test set was scored with what is best now."""
        progress = self.progress
        end = End(progress.step, progress.best_name, progress.best_score, self.trained, tested)
        write_file(self.run.path / "finished.json", json.dumps(asdict(end)).encode())

    def _over(self) -> bool:
        """Validate if it is time, also where a signal cut that short, and say whether there is nothing left to do."""
        progress = self.progress
        over = self._out_of_budget()
        if progress.step > progress.last_validated and (over or progress.step % self.settings.valid_every == 0):
            if self.world.leads:
                self._validate_and_save()
            told = asdict(progress), self.signals.received, self._seconds()
            state, self.stop, self.clock = self.world.from_leader(told)
            self.progress = progress = progress if self.world.leads else Progress.from_state(state)
            self._stop_if_asked()
            over = over or self._out_of_budget()
        if over:
            return True
        patience = self.settings.patience
        return bool(patience) and progress.worse_in_a_row >= patience

    def _out_of_budget(self) -> bool:
        steps, limit = self.settings.steps, self.settings.minutes
        out_of_time = limit is not None and self.clock >= limit * 60
        return out_of_time or (steps is not None and self.progress.step >= steps)

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self.started

    def _share(self) -> float:
        """How much of the budget is used: by updates where these are limited, else by time."""
        if self.settings.steps is not None:
            return self.progress.step / self.settings.steps
        assert self.settings.minutes is not None
        return self.clock / (self.settings.minutes * 60)

    def _done(self) -> float:
        return float(self.progress.step) if self.settings.steps is not None else self._seconds() / 60

    # -- one update ---------------------------------------------------------------------------------------------------

    def _update(self, stream: BatchStream) -> None:
        """One step of the optimizer: the loss summed over all target tokens of the update, divided by their number."""
        began = time.monotonic()
        self.model.train()
        batches = [next(stream) for _ in range(self.settings.accumulate)]
        num_tokens = sum(batch.num_tokens for batch in batches)
        share = self._share()
        rate = self._set_learning_rate(share)
        ratio = ratio_at(self.settings.teacher_forcing, share, self._expected_steps(share))
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.device)
        for index, batch in enumerate(batches):
            torch.manual_seed(self._seed(index))
            with self._synchronised(index == len(batches) - 1):
                guide = None if self.guide is None else self.guide.targets(batch).to(self.device)
                with self.precision.autocast():
                    smoothed, extra = self.objective(batch.to(self.device), ratio, share, self.progress.rewards, guide)
                # The processes' gradients are averaged, but the update is the sum over all tokens by their number.
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
        if self.ema is not None and not self.progress.skipped_in_a_row:
            self.ema.update(self.progress.step - self.progress.skipped)
        self.progress.epoch, self.progress.position = stream.epoch, stream.position
        self._record(value, norm, rate, ratio, num_tokens, time.monotonic() - began)

    def _seed(self, index: int) -> int:
        """Of the randomness in a batch of the update, in this process."""
        return _mixed_seed(self.settings.seed, self.progress.step, index * self.world.size + self.world.rank)

    def _synchronised(self, last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once per update, with its last batch."""
        if last or not isinstance(self.objective, DistributedDataParallel):
            return nullcontext()
        waiting: AbstractContextManager[None] = self.objective.no_sync()
        return waiting

    def _agree(self, loss: float) -> float:
        """What all processes must know of an update: its whole loss, rewards on one scale, the time, any stop."""
        rewards, size = self.progress.rewards, self.world.size
        asked, seconds = self.signals.received is not None, self._seconds() if self.world.leads else 0.0
        loss, stopping, self.clock, *scale = self.world.sums(
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

    def _expected_steps(self, share: float) -> float:
        """How many updates the whole run has, as far as one can tell."""
        if self.settings.steps is not None:
            return float(self.settings.steps)
        return max(1.0, self.progress.step) / max(share, 1e-6)

    def _skip(self, batches: list[Batch], loss: float, norm: float) -> None:
        """Leave out an update that is not finite, and give up when they do not end."""
        self.progress.skipped += 1
        self.progress.skipped_in_a_row += 1
        if self.precision.scaler.is_enabled() and self.progress.skipped_in_a_row < MOST_SKIPPED:
            return  # the loss scale was too high, which is how it finds its height
        lines = np.concatenate([self.job.train.lines[batch.rows] for batch in batches])
        shown = ", ".join(map(str, sorted(lines.tolist())[:20])) + (" …" if len(lines) > 20 else "")
        message = (
            f"update {self.progress.step + 1}: loss {loss}, gradient norm {norm}: left out. "
            f"The batch holds these lines of the training data: {shown}."
        )
        if self.progress.skipped_in_a_row >= MOST_SKIPPED:
            raise NumericalError(
                f"{message} That were {MOST_SKIPPED} in a row. Lower train.learning_rate or train.clip, "
                "or use train.precision=fp32, and go on from the last checkpoint with --resume."
            )
        self.reporter.say(f"Warning: {message}")

    def _record(self, loss: float, norm: float, rate: float, ratio: float, num_tokens: int, seconds: float) -> None:
        """Add an update to the sums, and write them when their time has come."""
        window, step = self.progress.window, self.progress.step
        sums = {"loss": loss * num_tokens, "tokens": num_tokens, "norm": norm, "updates": 1, "seconds": seconds}
        if self.progress.skipped_in_a_row:  # nothing was learnt, and one NaN would spoil the whole window
            sums = dict.fromkeys(sums, 0.0) | {"seconds": seconds}
        for key, value in sums.items():
            window[key] = window.get(key, 0.0) + value
        mean_loss = window["loss"] / max(window["tokens"], 1.0)
        speed = window["tokens"] / max(window["seconds"], 1e-9)
        left = self._seconds_left()
        self.reporter.advance(self._done(), mean_loss, speed, left)
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
            seconds=round(self._seconds(), 1),
        )
        if not self.reporter.has_bar:
            self.reporter.say(f"update {step}: loss {mean_loss:.3f}, {speed:,.0f} tokens/s, {minutes(left)} left")
        window.clear()

    def _seconds_left(self) -> float:
        """By the pace so far, to whichever limit comes first."""
        used, limits = self._seconds(), []
        if self.settings.steps is not None:
            limits.append(used / max(1, self.progress.step) * (self.settings.steps - self.progress.step))
        if self.settings.minutes is not None:
            limits.append(self.settings.minutes * 60 - used)
        return min(limits)

    # -- validation and saving ----------------------------------------------------------------------------------------

    def _validate_and_save(self) -> None:
        try:
            with nullcontext() if self.ema is None else self.ema.in_place():
                scores, translations = self._scores()
        except _Interrupted:
            return  # the loop saves and stops; the resumed run validates first
        progress = self.progress
        name = f"step-{progress.step:08d}"
        score = self._judged(scores)
        improved = np.isfinite(score) and (progress.best_score is None or score > progress.best_score)
        progress.last_validated = progress.step
        progress.history.append((name, score))
        if improved:
            progress.best_name, progress.best_score = name, score
        progress.worse_in_a_row = 0 if improved else progress.worse_in_a_row + 1
        self._count_plateau(improved)
        assert self.log is not None
        self.log.write("valid", progress.step, **scores, seconds=round(self._seconds(), 1))
        self._show(scores, translations, improved)
        self._save()

    def _scores(self) -> tuple[dict[str, float], list[Translation]]:
        """Loss at full teacher forcing, BLEU and chrF of greedy translations."""
        self.model.eval()
        translations = []
        lines = self.job.valid_sources
        for begin in range(0, len(lines), 256):
            translations += [best[0] for best in self.translator.translate(lines[begin : begin + 256])]
            self._interrupt_if_asked()
        texts = [translation.text for translation in translations]
        scores = quick_scores(texts, self.job.valid_references, self.config.data.target_lang)
        return {"loss": self._valid_loss(), **scores}, translations

    @torch.inference_mode()
    def _valid_loss(self) -> float:
        valid = self.job.valid
        longest = np.maximum(valid.src_lengths, valid.tgt_lengths)
        total, num_tokens = 0.0, 0
        for rows in token_batches(longest, self.settings.batch_tokens, np.argsort(longest, kind="stable")):
            batch = collate(valid, rows).to(self.device)
            with self.precision.autocast():
                decoded, source = self.model(batch.src, batch.src_valid, batch.src_lengths, batch.tgt_in)
                total += float(sequence_loss(self.model, decoded, source, batch.tgt_out, batch.tgt_valid, 0.0).nll)
            num_tokens += batch.num_tokens
            self._interrupt_if_asked()
        return total / num_tokens

    def _judged(self, scores: Mapping[str, float]) -> float:
        """The score by which checkpoints are compared, greater is better; nothing is worse than no number."""
        value = scores[self.settings.metric]
        if not np.isfinite(value) or not np.isfinite(scores["loss"]):
            return WORST
        return -value if self.settings.metric == "loss" else value

    def _count_plateau(self, improved: bool) -> None:
        if self.settings.schedule != "plateau":
            return
        self.progress.plateau_worse = 0 if improved else self.progress.plateau_worse + 1
        if self.progress.plateau_worse >= self.settings.plateau_patience:
            self.progress.plateau_worse = 0
            self.progress.reductions += 1

    def _show(self, scores: Mapping[str, float], translations: list[Translation], improved: bool) -> None:
        numbers = f"loss {scores['loss']:.3f}, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}"
        self.reporter.say(f"validation after {self.progress.step}: {numbers}{' (best so far)' if improved else ''}")
        count = min(self.config.logging.samples, len(translations))
        if not count:
            return
        rows = [
            f"  source    {self.job.valid_sources[i]}\n  written   {translations[i].text}\n"
            f"  reference {self.job.valid_references[i]}\n"
            for i in range(count)
        ]
        folder = self.run.path / "samples"
        folder.mkdir(exist_ok=True)
        write_file(folder / f"step-{self.progress.step:08d}.txt", "\n".join(rows).encode())
        self.reporter.say(rows[0].rstrip("\n"))
        if self.config.logging.pictures:
            from translate.training.samples import draw_samples  # matplotlib takes a second to load

            writer = None if self.log is None else self.log.writer
            given = self.job.valid_sources[:count], translations[:count]
            try:
                draw_samples(folder, self.progress.step, self.translator, *given, writer)
            except UserError as error:  # a picture that cannot be written is no reason to stop
                self.reporter.say(f"Warning: {error}")

    def _save(self) -> Checkpoint:
        progress = self.progress
        progress.scaler = dict(self.precision.scaler.state_dict())
        state = {**asdict(progress), "seconds": self._seconds()}
        weights = _weights(self.model)
        tensors = optimizer_tensors(self.optimizer, self.model)
        if self.ema is not None:  # whoever loads the model gets the average; only training asks for what is behind it
            tensors |= named_raw(weights)
            with self.ema.in_place():
                weights = _weights(self.model)
        checkpoint = self.run.save(f"step-{progress.step:08d}", weights, tensors, state)
        self.saved = progress.step
        self._point(checkpoint)
        newest = {kept.name for kept in self.run.checkpoints()[-self.settings.keep_last :]}
        self.run.purge(newest | set(self._to_average()))
        return checkpoint

    def _point(self, newest: Checkpoint) -> None:
        """Name the newest checkpoint and the best one."""
        self.run.point("last", newest)
        best = self.run.checkpoints_path / self.progress.best_name
        if self.progress.best_name and best.is_dir():
            self.run.point("best", Checkpoint(best))

    def _to_average(self) -> list[str]:
        """The checkpoints that an average at this point would take."""
        history = self.progress.history
        if not self.settings.average:
            return []
        if self.settings.average_of == "best":
            history = sorted(history, key=lambda entry: -entry[1])[: self.settings.average]
        return [name for name, _ in history[-self.settings.average :]]

    def _average(self) -> None:
        """Average the weights of several checkpoints; the average becomes `best` where it scores better."""
        names = sorted(self._to_average())
        if len(names) < 2:
            return
        kept = _weights(self.model)
        weights = average_weights([Checkpoint(self.run.checkpoints_path / name) for name in names])
        fill(self.model, weights)
        try:
            scores, _ = self._scores()
        except _Interrupted:
            self.stop = self.signals.received
            self._stop_if_asked()
        score, best = self._judged(scores), self.progress.best_score
        better = score > (WORST if best is None else best)
        numbers = f"loss {scores['loss']:.3f}, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}"
        verdict = "better, so it is kept" if better else "not better, so it is not used"
        self.reporter.say(f"average of {len(names)} checkpoints: {numbers}; {verdict}")
        if better:
            self.progress.best_name, self.progress.best_score = f"average-{self.progress.step:08d}", score
            state = {**asdict(self.progress), "seconds": self._seconds(), "averaged": names}
            self.run.point("best", self.run.save(self.progress.best_name, weights, {}, state))
        fill(self.model, kept)

    # -- stopping and going on ----------------------------------------------------------------------------------------

    def _interrupt_if_asked(self) -> None:
        if self.signals.received is not None:
            raise _Interrupted

    def _stop_if_asked(self) -> None:
        if self.stop is None:
            return
        if self.world.leads and self.saved != self.progress.step:
            self._save()
        raise Stopped(self.stop, f"Stopped after update {self.progress.step}; the checkpoint is saved.")

    def _restore(self) -> None:
        """Take up the newest sound checkpoint, or start from the weights of another run where told."""
        checkpoint = self.run.latest()
        if checkpoint is None:
            self._start_from_other_run()
            self._start_from_vectors()
            self._start_average()
            return
        weights = checkpoint.weights()
        check_fit(self.model, weights, where=str(checkpoint.path))
        fill(self.model, weights)
        self._start_average()
        raw, tensors = split_raw(checkpoint.optimizer())
        if self.ema is not None:
            check_fit(self.model, raw, where=str(checkpoint.path))
            fill(self.model, raw)
        restore_optimizer(self.optimizer, self.model, tensors)
        state = checkpoint.state()
        try:
            self.progress = Progress.from_state(state)
        except TypeError as error:
            raise RunError(f"{checkpoint.path}/state.json is not one of ours: {error}") from None
        end = read_end(self.run)
        if end is not None and end.step == self.progress.step:  # a kept average is better than any checkpoint so far
            self.progress.best_name, self.progress.best_score = end.best_name, end.best_score
        self.saved = self.progress.step
        if self.world.leads:
            self._point(checkpoint)  # a kill may have come between a checkpoint and its names
        if self.precision.scaler.is_enabled() and self.progress.scaler:
            self.precision.scaler.load_state_dict(self.progress.scaler)
        self.reporter.say(f"Going on from {checkpoint.path}.")

    def _start_from_other_run(self) -> None:
        if self.settings.init_from is None:
            return
        other = other_run(self.settings.init_from)
        weights = other.best().weights()
        check_fit(self.model, weights, where=str(other.path))
        fill(self.model, weights)
        self.reporter.say(f"Starting from the weights of {other.path}.")

    def _start_from_vectors(self) -> None:
        tables = {"source": self.model.src_embed.table, "target": self.model.decoder.embed.table}
        for side, file, vectors in start_vectors(self.config, self.job.source, self.job.target):
            table = tables[side]
            with torch.no_grad():
                for index, vector in vectors.items():
                    table.weight[index] = torch.from_numpy(vector)
            self.reporter.say(f"{side} embeddings: {len(vectors):,} of {len(table.weight):,} pieces found in {file}")

    def _start_average(self) -> None:
        if self.settings.ema:
            self.ema = MovingAverage(self.model, self.settings.ema)

    def _say_start(self) -> None:
        config = self.config
        self.reporter.say(
            f"Training {self.model.num_parameters:,} parameters on {self.device.type} in {self.precision.name} with "
            f"{self.settings.threads} threads; vocabulary {self.job.source.size:,} and {self.job.target.size:,}."
        )
        if not config.model.attends:
            kind = config.model.decoder.kind
            self.reporter.say(f"The {kind} decoder has no attention: [model.attention] is ignored.")
        if self.settings.steps is None:
            self.reporter.say(
                "The budget is in minutes: the schedule follows the clock, so a resumed run is not bit-equal."
            )


def _weights(model: Seq2Seq) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.named_parameters()}


def _mixed_seed(*numbers: int) -> int:
    """One 63-bit seed from several numbers, well mixed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
