"""Running the code of several commits: folders that hold a checkout, and Python processes that import from them.

Imports nothing of `translate`: a process that runs with another commit's code may import this module as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The folder of a checkout: the one that is named, or a worktree of the revision that is removed afterwards."""
    from translate.errors import UserError

    folder = Path(commit)
    if (folder / "translate" / "__init__.py").is_file():
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="commit-") as temporary:
        place = Path(temporary) / "checkout"
        made = _git("worktree", "add", "--detach", place, commit)
        if made.returncode:
            reason = (made.stderr.strip().splitlines() or ["git said nothing"])[-1]
            raise UserError(f"{commit}: neither a folder that holds a checkout nor a revision of {ROOT}: {reason}")
        try:
            yield place
        finally:
            _git("worktree", "remove", "--force", place)


def _git(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def environment_for(checkout: Path, threads: int | None = None) -> dict[str, str]:
    """The environment of a process that imports the checkout's code, with a limit to its threads if there is one."""
    limit = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**os.environ, "PYTHONPATH": str(checkout), "NO_COLOR": "1", **limit}


def run_python(checkout: Path, folder: Path, *arguments: str | Path, threads: int | None = None) -> str:
    """What Python with the code of a checkout wrote to stdout, in a folder that holds no code."""
    from comparing import MemberFailed, last_word

    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment_for(checkout, threads),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        reason = last_word(done.stderr) or f"ended with {done.returncode}"
        raise MemberFailed(f"{checkout}: {' '.join(command[1:4])}: {reason}")
    return done.stdout


def run_translate(checkout: Path, folder: Path, *arguments: str | Path, threads: int | None = None) -> str:
    """What a checkout's own `python -m translate` wrote to stdout."""
    return run_python(checkout, folder, "-m", "translate", *arguments, threads=threads)
