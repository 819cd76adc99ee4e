"""`translate curves`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Metric(StrEnum):
    """What validation measures."""

    bleu = "bleu"
    chrf = "chrf"
    loss = "loss"


class By(StrEnum):
    """The x axis."""

    minutes = "minutes"
    updates = "updates"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, finished or not.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture, a PNG file.")] = Path("curves.png"),
    label: Annotated[
        list[str] | None, typer.Option(help="Name of a run, in the order of the runs; its folder if left out.")
    ] = None,
    metric: Annotated[Metric, typer.Option(help="Which validation score.")] = Metric.bleu,
    by: Annotated[By, typer.Option(help="The x axis: minutes of training, validation included, or updates.")] = (
        By.minutes
    ),
) -> None:
    """Draw the learning curves of several runs into one picture."""
    from translate.errors import UserError
    from translate.figures.curves import save_comparison
    from translate.run.directory import Run

    labels = label or [path.resolve().name for path in runs]
    if len(labels) != len(runs):
        raise UserError(f"{len(runs)} runs, but --label is given {len(labels)} times. Give one for each run, or none.")
    doubled = next((name for name in labels if labels.count(name) > 1), None)
    if doubled is not None:
        raise UserError(f"Two runs are called {doubled}. Name each with --label.")
    files = {name: Run.open(path).path / "metrics.jsonl" for name, path in zip(labels, runs, strict=True)}
    save_comparison(output, files, metric.value, by.value)
    print(output)
