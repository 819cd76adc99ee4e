"""What the comparisons share: commands that can be stopped, several members at once, and facts for the page's head."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar

from translate.config import load_config
from translate.errors import RunError, UserError
from translate.machine import cpu_name
from translate.run.directory import Run

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("translate", "scripts", "configs", "data")  # of the repository: what the numbers depend on

Made = TypeVar("Made")


class MemberFailed(Exception):
    """A command of a member went wrong; the message is the last it said."""


@dataclass(frozen=True)
class Failure:
    """A member that has no numbers, and why."""

    reason: str


class Commands:
    """Runs `python -m translate`; a stop reaches every process that is under way, once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[str]] = set()
        self.stopped = False

    def run(self, log: Path, *arguments: str | Path) -> str:
        """What the command wrote to stdout; all else it said is in the log."""
        command = [sys.executable, "-m", "translate", *map(str, arguments)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        with log.open("ab") as file:
            file.write(f"$ {shlex.join(['translate', *command[3:]])}\n".encode())
            file.flush()
            before = file.tell()
            with self.lock:
                if self.stopped:
                    raise MemberFailed("stopped")
                # A session of its own: Ctrl-C would reach it a second time, and the second means to leave unsaved.
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    encoding="utf-8",
                    start_new_session=True,
                )
                self.running.add(process)
            output, _ = process.communicate()
            with self.lock:
                self.running.discard(process)
            said = log.read_bytes()[before:].decode(errors="replace")
            file.write(output.encode())
        if process.returncode:
            raise MemberFailed(last_word(said) or f"`translate {arguments[0]}` ended with {process.returncode}")
        return output

    def stop(self) -> None:
        """End what is running, which saves where it stands, and start nothing more."""
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.terminate()


def make_all(
    todo: Sequence[str],
    jobs: int,
    make: Callable[[str, Commands], Made],
    done: Callable[[str, Made | Failure], None],
) -> None:
    """Make what is named, `jobs` at a time, and report each when it is done; a stop ends all running commands."""
    commands = Commands()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(make, name, commands): name for name in todo}
            for future in as_completed(futures):
                try:
                    outcome: Made | Failure = future.result()
                except MemberFailed as error:
                    outcome = Failure(str(error))
                done(futures[future], outcome)
        except BaseException:
            commands.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def is_other_run(path: Path, config: Path, settings: Sequence[str]) -> bool:
    """Whether there is a run with other settings, which can be neither resumed nor reused."""
    run = Run(path)
    try:
        return run.exists() and run.config() != load_config(config, settings)
    except RunError:
        return True


def last_word(said: str) -> str:
    """The error in what a command said: the message for a user, or the last line of a traceback."""
    lines = [line.strip() for line in said.split("\n") if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or [""])[-1]


def commit_now() -> str:
    """The commit of the code that runs, and whether it is all of it."""

    def git(*arguments: str | Path) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *PARTS)
        return git("rev-parse", "--short", "HEAD") + (" with changes not committed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def machine() -> str:
    """Processor, cores and torch."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpu_name() or platform.machine()}, {cores} cores, torch {torch.__version__}"


def distinct(values: Iterable[str]) -> str:
    """The value where there is one, all of them where rows of several calls stand together."""
    return "; ".join(sorted(set(values))) or "none yet"


def plain(reason: str) -> str:
    """A message as one cell of a table."""
    return reason.replace("|", "\\|").replace("<", "&lt;")[:200]


def as_program(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """A main function whose mistakes are told and whose stops are clean: 0 done, 1 a member failed, 2, 130."""

    @wraps(main)
    def guarded(arguments: Sequence[str] | None = None) -> int:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a kill stops as Ctrl-C does
        try:
            return main(arguments)
        except UserError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("Stopped; the same command goes on.", file=sys.stderr)
            return 130
        finally:
            signal.signal(signal.SIGTERM, before)

    return guarded


def at_least_one(text: str) -> int:
    """A positive whole number of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number
