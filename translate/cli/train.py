"""`translate train`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from translate.cli.options import PluginOption


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A configuration file; `translate init` writes one.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Settings to change, as in train.steps=500; docs/settings.md lists all."
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/NAME of the configuration if left out.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run (see --run); start it if there is none.")
    ] = False,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Train the other direction: source and target swapped.")
    ] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Do not score the test set at the end.")] = False,
    plugin: PluginOption = None,
) -> None:
    """Learn a tokenizer, train a model, and score it on the test set."""
    from translate.config import load_config, reverse_config
    from translate.errors import Stopped, UserError
    from translate.run.directory import Run
    from translate.training.logging import Reporter
    from translate.training.train import train

    settings = load_config(config, overrides or ())
    if reverse:
        settings = reverse_config(settings)
    path = run or default_run(config, reverse)
    with_plugins = [word for file in plugin or () for word in ("--plugin", str(file))]
    follows = os.environ.get("RANK", "0") != "0"  # one of torchrun's processes that is not the first
    reporter = Reporter(quiet=follows)
    try:
        train(settings, Run(path), resume, not no_test, reporter)
    except UserError as error:
        if follows:  # the cause may be this machine, and the first process would not report it
            raise UserError(f"process {os.environ['RANK']}: {error}") from None
        raise
    except Stopped as stop:
        if follows:
            raise SystemExit(128 + stop.signal_number) from None
        words = ["translate", "train", str(config), *(overrides or ()), "--run", str(path), "--resume"]
        again = shlex.join(words + ["--reverse"] * reverse + ["--no-test"] * no_test + with_plugins)
        raise Stopped(stop.signal_number, f"{str(stop) or 'Stopped.'}\nGo on with: {again}") from None
    reporter.say(f"The run is in {path}. Try: {shlex.join(['translate', 'interactive', str(path), *with_plugins])}")


def default_run(config: Path, reverse: bool = False) -> Path:
    """runs/demo for configs/demo.toml, runs/mine for mine/config.toml, runs/demo-reverse for the other direction."""
    name = config.resolve().parent.name if config.name == "config.toml" else config.stem
    return Path("runs") / (f"{name}-reverse" if reverse else name)
