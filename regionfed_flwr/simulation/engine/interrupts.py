"""Ctrl-C and its relatives as a flag that the waiting code looks at."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

_SLICE_SECONDS = 0.1


class Interrupted(Exception):
    """The run was asked to stop by a signal.

    Attributes
    ----------
    number : int
        The signal's number; the command ends with 128 plus it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Interrupts:
    """Context in which SIGINT, SIGTERM and SIGHUP only set a flag; see :meth:`sleep`.

    The handler does nothing else, so it cannot cut a clean-up short. Outside the main thread, where Python allows
    no handlers, the context changes nothing.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # A run under nohup is meant to outlive its terminal.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number

    def check(self) -> None:
        """Raise :class:`Interrupted` when a signal has come."""
        if self.number is not None:
            raise Interrupted(self.number)

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than a tenth of a second after a signal, which then raises."""
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SECONDS))
            self.check()
