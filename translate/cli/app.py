"""The entry point `translate`: commands, exit codes and how errors look."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any

import typer

from translate.cli import (
    aer,
    align,
    compare,
    curves,
    data,
    doctor,
    evaluate,
    head,
    info,
    init,
    interactive,
    score,
    text,
    train,
    zoo,
)
from translate.errors import Stopped, UserError
from translate.machine import KERNELS_VARIABLE, kernels_setting, tune_process

app = typer.Typer(
    name="translate",
    help="Train an attention-based translator, evaluate it, use it, and inspect its attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (init, train, evaluate, compare, curves, text, interactive, align, head, aer, score, info, zoo, doctor):
    app.command(module.__name__.rpartition(".")[2])(module.command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; 0 done, 2 the user's mistake, 130 and 143 stopped by a signal, 1 our bug."""
    warnings.showwarning = _show_warning
    tune_process()
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # a translation is UTF-8 as the corpus is, whatever the locale
    try:
        _note_kernels()
        app()
    except UserError as error:
        _fail(f"Error: {error}", 2)
    except Stopped as stop:
        _fail(str(stop) or "Stopped; there was nothing to save yet.", 128 + stop.signal_number)
    except KeyboardInterrupt:
        _fail("Stopped.", 130)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # The reader of our output has closed it, as `head` does; Typer exits with 1 then. Python would print another
        # error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _note_kernels() -> None:
    """Tell the user that reference code runs in place of the kernels: it is slower and rounds differently."""
    setting = kernels_setting()
    if setting == "reference":
        print(f"{KERNELS_VARIABLE}=reference: plain PyTorch code runs in place of the kernels.", file=sys.stderr)
    elif setting:
        raise UserError(f"{KERNELS_VARIABLE}={setting}: the only value is 'reference'. Leave it unset for the kernels.")


def _fail(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"Warning: {message}", file=sys.stderr)
