"""Progress of a long command, on stderr."""

from __future__ import annotations

import time
from typing import TextIO

_SECONDS = {True: 0.5, False: 10.0}  # between two reports, on a terminal and elsewhere


class SentenceProgress:
    """Number of sentences and speed: one line that is updated on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, stream: TextIO, shown: bool) -> None:
        self.stream = stream
        self.shown = shown
        self.terminal = stream.isatty()
        self.start = self.last = time.monotonic()
        self.written = False

    def show(self, done: int) -> None:
        """Report the number of sentences done, if the last report is old enough."""
        now = time.monotonic()
        if not self.shown or now - self.last < _SECONDS[self.terminal]:
            return
        self.last, self.written = now, True
        begin, end = ("\r", "") if self.terminal else ("", "\n")
        speed = done / (now - self.start)
        self.stream.write(f"{begin}{done:,} sentences, {speed:,.0f}/s{end}")
        self.stream.flush()

    def end(self) -> None:
        """End the line on a terminal."""
        if self.written and self.terminal:
            self.stream.write("\n")
