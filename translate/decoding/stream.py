"""Lines as they come: a waiting pipe gets its answer at once, a file is read in large pieces."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from translate.text.corpus import lines_of, read_lines

MOST_LINES = 1000


def line_chunks(path: Path) -> Iterator[list[str]]:
    """What has arrived, in order, at most a thousand lines at a time; `-` is stdin."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(2 * MOST_LINES)
    threading.Thread(target=_read, args=(path, arrived), daemon=True).start()
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


def _read(path: Path, arrived: queue.Queue[str | BaseException | None]) -> None:
    try:
        if str(path) == "-":
            # A reader of our own: Python aborts at its end if this thread still waits inside sys.stdin's.
            lines = lines_of(open(sys.stdin.fileno(), "rb", closefd=False), "stdin")  # noqa: SIM115
        else:
            lines = read_lines(path)
        for line in lines:
            arrived.put(line)
        arrived.put(None)
    except BaseException as error:
        arrived.put(error)
