"""A run draws where its model looked, and how training went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.mark.slow
def test_pictures_of_samples_and_curves(new_project: Callable[[Path], Path], tmp_path: Path, translate: Any) -> None:
    config = new_project(tmp_path / "project")
    more = ("logging.pictures=true", "logging.samples=2", "logging.tensorboard=true", "train.steps=20")
    done = translate("train", config, *more, "--no-test", "--run", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "learning curves: " in done.stderr
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    names = sorted(path.name for path in (tmp_path / "run" / "samples").iterdir())
    assert names == [f"step-000000{step}{end}" for step in (10, 20) for end in ("-1.png", "-2.png", ".txt")]
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert events.Tags()["images"] == ["samples/1", "samples/2"]
    assert [event.step for event in events.Images("samples/2")] == [10, 20]
