"""Stopping by signals: the first one saves a checkpoint and stops, the second one stops at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from translate.errors import Stopped

HANDLED = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While active, SIGTERM and Ctrl-C set `received`; before there is anything to save, they stop at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.can_save = False
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.can_save:
            raise Stopped(number)
        if self.received is not None:
            os._exit(128 + number)  # a second signal: an unfinished write leaves only a temporary directory
        self.received = number

    def __enter__(self) -> Self:
        for number in HANDLED:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
