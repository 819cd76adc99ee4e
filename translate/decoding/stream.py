"""Lines as they come: a waiting pipe gets its answer at once, a file is read in large pieces."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

from translate.text.corpus import read_lines

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
        for line in read_lines(path):
            arrived.put(line)
        arrived.put(None)
    except BaseException as error:
        arrived.put(error)
