"""Reading lines: those of a pipe are answered as they arrive, a file is read in large chunks."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from translate.errors import DataError
from translate.text.corpus import read_lines

MOST_LINES = 1000


def line_chunks(path: Path, skip: int = 0) -> Iterator[list[str]]:
    """The lines after the first `skip`, as they arrive, at most a thousand at a time; `-` is stdin."""
    lines = read_lines(path)
    skipped = sum(1 for _ in islice(lines, skip))
    if skipped < skip:
        raise DataError(
            f"{path} has {skipped:,} lines, but {skip:,} are answered already: another file, or another --nbest?"
        )
    if not _waits(path):  # all of it is there already
        while chunk := list(islice(lines, MOST_LINES)):
            yield chunk
        return
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(2 * MOST_LINES)
    threading.Thread(target=_read, args=(lines, arrived), daemon=True).start()
    while True:
        chunk, item = [], arrived.get()
        while isinstance(item, str):
            chunk.append(item)
            if len(chunk) == MOST_LINES or arrived.empty():
                break
            item = arrived.get()
        if chunk:
            yield chunk
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def _waits(path: Path) -> bool:
    """Whether reading may have to wait for a writer."""
    try:
        status = os.fstat(sys.stdin.fileno()) if str(path) == "-" else path.stat()
    except OSError:
        return False  # reading it will tell why
    return not stat.S_ISREG(status.st_mode)


def _read(lines: Iterator[str], arrived: queue.Queue[str | BaseException | None]) -> None:
    try:
        for line in lines:
            arrived.put(line)
        arrived.put(None)
    except BaseException as error:
        arrived.put(error)


class LineAlignedFile:
    """A file with one line for each line of the input, such as prefixes."""

    def __init__(self, path: Path, skip: int = 0) -> None:
        self.path = path
        self.given = skip
        self._lines = islice(read_lines(path), skip, None)

    def next(self, count: int) -> list[str]:
        """The next `count` lines."""
        some = list(islice(self._lines, count))
        self.given += len(some)
        if len(some) < count:
            raise DataError(
                f"{self.path} has {self.given} lines, the input has more: it needs a line for each of them."
            )
        return some

    def end(self) -> None:
        """Check that no line is left."""
        if next(self._lines, None) is not None:
            raise DataError(
                f"{self.path} has more lines than the input, which has {self.given}: does it belong to this input?"
            )


def count_answered(path: Path, per_line: int) -> int:
    """How many lines of the input a file answers, with `per_line` lines each; cuts off an incomplete last answer."""
    if not path.exists():
        return 0
    try:
        with path.open("r+b") as file:
            lines = position = whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                position += len(line)
                lines += 1
                if lines % per_line == 0:
                    whole = position
            file.truncate(whole)
    except OSError as error:
        raise DataError(f"{path}: cannot be continued: {error.strerror}.") from None
    return lines // per_line
