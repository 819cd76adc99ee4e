"""Checkpoints of a run in training: writing, naming, reading, deleting and averaging them."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor
from torch.optim import Optimizer

from translate.config import TrainConfig
from translate.device import Precision
from translate.errors import RunError
from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import Checkpoint, check_fit, fill
from translate.run.directory import Run
from translate.training.averaging import MovingAverage, average_weights, named_raw, split_raw
from translate.training.optim import optimizer_tensors, restore_optimizer
from translate.training.progress import Progress, read_end


class Snapshots:
    """Saves and restores all that a resumed run needs."""

    def __init__(
        self, run: Run, model: Seq2Seq, optimizer: Optimizer, precision: Precision, settings: TrainConfig
    ) -> None:
        self.run, self.model, self.optimizer, self.precision, self.settings = run, model, optimizer, precision, settings
        self.ema: MovingAverage | None = None
        self.saved: int | None = None
        """The update whose checkpoint this process has written or read."""

    def start_average(self) -> None:
        """Start the moving average of `train.ema` from the current weights."""
        if self.settings.ema:
            self.ema = MovingAverage(self.model, self.settings.ema)

    def save(self, progress: Progress, seconds: float) -> None:
        """Write a checkpoint, name it, and delete those that are no longer needed."""
        progress.scaler = dict(self.precision.scaler.state_dict())
        state = {**asdict(progress), "seconds": seconds}
        weights = weights_of(self.model)
        tensors = optimizer_tensors(self.optimizer, self.model)
        if self.ema is not None:  # the model's file holds the average; only training needs the raw weights
            tensors |= named_raw(weights)
            with self.ema.in_place():
                weights = weights_of(self.model)
        checkpoint = self.run.save(f"step-{progress.step:08d}", weights, tensors, state)
        self.saved = progress.step
        self.point(checkpoint, progress)
        newest = {kept.name for kept in self.run.checkpoints()[-self.settings.keep_last :]}
        self.run.purge(newest | set(self.names_to_average(progress)))

    def restore(self, checkpoint: Checkpoint) -> Progress:
        """Fill model and optimizer from a checkpoint; returns the progress."""
        weights = checkpoint.weights()
        check_fit(self.model, weights, where=str(checkpoint.path))
        fill(self.model, weights)
        self.start_average()
        raw, tensors = split_raw(checkpoint.optimizer())
        if self.ema is not None:
            check_fit(self.model, raw, where=str(checkpoint.path))
            fill(self.model, raw)
        restore_optimizer(self.optimizer, self.model, tensors)
        try:
            progress = Progress.from_state(checkpoint.state())
        except TypeError as error:
            raise RunError(f"{checkpoint.path}/state.json is not readable: {error}") from None
        end = read_end(self.run)
        if end is not None and end.step == progress.step:  # a kept average is better than any checkpoint so far
            progress.best_name, progress.best_score = end.best_name, end.best_score
        if self.precision.scaler.is_enabled() and progress.scaler:
            self.precision.scaler.load_state_dict(progress.scaler)
        self.saved = progress.step
        return progress

    def point(self, newest: Checkpoint, progress: Progress) -> None:
        """Point `last` to the newest checkpoint, and `best` to the best one."""
        self.run.point("last", newest)
        best = self.run.checkpoints_path / progress.best_name
        if progress.best_name and best.is_dir():
            self.run.point("best", Checkpoint(best))

    def names_to_average(self, progress: Progress) -> list[str]:
        """The checkpoints that would be averaged now."""
        history = progress.history
        if not self.settings.average:
            return []
        if self.settings.average_of == "best":
            history = sorted(history, key=lambda entry: -entry[1])[: self.settings.average]
        return [name for name, _ in history[-self.settings.average :]]

    def average_of(self, names: list[str]) -> dict[str, Tensor]:
        return average_weights([Checkpoint(self.run.checkpoints_path / name) for name in names])

    def save_average(self, weights: dict[str, Tensor], names: list[str], progress: Progress, seconds: float) -> None:
        """Write an average under the name `progress.best_name`, and point `best` to it."""
        state = {**asdict(progress), "seconds": seconds, "averaged": names}
        self.run.point("best", self.run.save(progress.best_name, weights, {}, state))


def weights_of(model: Seq2Seq) -> dict[str, Tensor]:
    """A copy of all parameters on the CPU."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.named_parameters()}
