"""What training reports: metrics.jsonl and TensorBoard for programs, a progress bar or plain lines for people."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from translate.run.sealed_files import append_line, write_file


class MetricsLog:
    """metrics.jsonl, one record a line, and the same numbers as TensorBoard scalars."""

    def __init__(self, run: Path, tensorboard: bool, step: int, last_validated: int) -> None:
        self.path = run / "metrics.jsonl"
        self._forget_after(step, last_validated)
        self.writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)

    def _forget_after(self, step: int, last_validated: int) -> None:
        """Drop what a stopped process wrote after the checkpoint that is resumed: it will be written again."""
        if not self.path.is_file():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the last line of a killed process, or the end of the file
            if record["step"] <= (last_validated if record["kind"] == "valid" else step):
                kept.append(line + "\n")
        write_file(self.path, "".join(kept).encode())

    def write(self, kind: str, step: int, **values: float | None) -> None:
        """Add a record; numbers that are not finite become null, because JSON does not have them."""
        values = {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
        append_line(self.path, json.dumps({"kind": kind, "step": step, **values}))
        if self.writer is not None:
            for name, value in values.items():
                if value is not None:
                    self.writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class Reporter:
    """Reports progress to the user: a progress bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        """`quiet` for all but the first of several processes."""
        self.console = console or Console(stderr=True, highlight=False, quiet=quiet)
        self.quiet = quiet
        self.progress: Progress | None = None
        self.task: TaskID | None = None

    def say(self, text: str) -> None:
        """One line of plain text; nothing in it is markup."""
        self.console.print(text, markup=False, soft_wrap=True)

    def start(self, done: float, total: float) -> Self:
        """`total` is a number of updates or of minutes, whichever ends training."""
        if self.console.is_terminal and not self.quiet:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                console=self.console,
                refresh_per_second=4,
            )
            self.task = self.progress.add_task("training", total=total, numbers="")
            self.progress.update(self.task, completed=done)
            self.progress.start()
        return self

    def advance(self, done: float, loss: float, tokens_per_second: float, seconds_left: float) -> None:
        """Move the bar, if there is one."""
        if self.progress is not None and self.task is not None:
            numbers = f"loss {loss:.3f} · {tokens_per_second:,.0f} tokens/s · {minutes(seconds_left)} left"
            self.progress.update(self.task, completed=done, numbers=numbers)

    @property
    def has_bar(self) -> bool:
        return self.progress is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def minutes(seconds: float) -> str:
    """Format a duration, as in 3:07 or 1:02:33."""
    whole = round(max(0.0, seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
