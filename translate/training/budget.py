"""The limits `train.steps` and `train.minutes`, and the share of them that is used."""

from __future__ import annotations

import time

from translate.config import TrainConfig


class Budget:
    """Training ends at whichever limit comes first; updates, not time, drive schedules where both are set."""

    def __init__(self, settings: TrainConfig, seconds_before: float) -> None:
        self._steps, self._minutes = settings.steps, settings.minutes
        self._before = seconds_before  # of training and validation, before this process
        self._started = time.monotonic()
        self.clock = seconds_before
        """Seconds of training and validation in the first process, as last sent to all processes."""

    def start(self) -> None:
        """Start the clock; preparation does not count."""
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Seconds of training and validation by this process."""
        return self._before + time.monotonic() - self._started

    def is_used_up(self, step: int) -> bool:
        out_of_time = self._minutes is not None and self.clock >= self._minutes * 60
        return out_of_time or (self._steps is not None and step >= self._steps)

    def used(self, step: int) -> float:
        """The share of the budget that is used."""
        if self._steps is not None:
            return step / self._steps
        assert self._minutes is not None
        return self.clock / (self._minutes * 60)

    def expected_steps(self, step: int) -> float:
        """The number of updates of the whole run, estimated if the budget is in minutes."""
        if self._steps is not None:
            return float(self._steps)
        return max(1.0, step) / max(self.used(step), 1e-6)

    @property
    def total(self) -> float:
        """The end of the progress bar, in updates or minutes."""
        return float(self._steps or self._minutes or 0)

    def done(self, step: int) -> float:
        """The position of the progress bar."""
        return float(step) if self._steps is not None else self.seconds() / 60

    def seconds_left(self, step: int) -> float:
        """Estimated seconds to the limit that comes first."""
        used, limits = self.seconds(), []
        if self._steps is not None:
            limits.append(used / max(1, step) * (self._steps - step))
        if self._minutes is not None:
            limits.append(self._minutes * 60 - used)
        return min(limits)
