"""The state of training, and whether anything is left to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from translate.config import Config
from translate.run.directory import Run
from translate.training.extra_losses import RewardScale


@dataclass
class Progress:
    """The state of training, as state.json holds it."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    seconds: float = 0.0
    last_validated: int = 0
    best_name: str = ""
    best_score: float | None = None
    worse_in_a_row: int = 0
    plateau_worse: int = 0
    reductions: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    history: list[tuple[str, float]] = field(default_factory=list)
    """Name and score of every checkpoint that follows a validation; a signal's checkpoints are not among them."""
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of metrics.jsonl."""
    scaler: dict[str, Any] = field(default_factory=dict)
    rewards: RewardScale = field(default_factory=RewardScale)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Invert `asdict`, also after a round trip through JSON; ignores unknown keys."""
        known = {item.name for item in fields(cls)}
        progress = cls(**{key: value for key, value in state.items() if key in known})
        progress.history = [(name, score) for name, score in progress.history]
        progress.rewards = RewardScale(**state.get("rewards", {}))
        return progress


@dataclass(frozen=True)
class End:
    """finished.json: what was done after the last update. Written last: without it, a resumed run does this again."""

    step: int
    best_name: str
    best_score: float | None
    seconds: float
    tested: bool


def read_end(run: Run) -> End | None:
    """The content of finished.json; None if it is missing or unreadable."""
    try:
        return End(**json.loads((run.path / "finished.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def limits_reached(config: Config, run: Run, test: bool) -> list[str]:
    """The limits that a run has reached; empty if training or what follows it is not done."""
    checkpoint, end = run.latest(), read_end(run)
    if checkpoint is None or end is None or end.step != checkpoint.step or (test and not end.tested):
        return []
    state, settings = checkpoint.state(), config.train
    reached = {
        "train.steps": settings.steps is not None and state["step"] >= settings.steps,
        "train.minutes": settings.minutes is not None and end.seconds >= settings.minutes * 60,
        "train.patience (0 is without end)": settings.patience > 0 and state["worse_in_a_row"] >= settings.patience,
    }
    return [name for name, holds in reached.items() if holds]
