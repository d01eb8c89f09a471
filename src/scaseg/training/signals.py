"""Signals that end a run: heard at once, obeyed when the step is done and the state is saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGINT)


class TerminatedError(SystemExit):
    """The run was told to end (SIGTERM), and has saved its state; the exit code is 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def leave_signals(worker: int) -> None:
    """Leave signals to the process that a loader's worker works for, and that ends it.

    Supervisors send SIGTERM, and terminals Ctrl-C, to a whole group: without its workers a run
    could not finish the step that it wants to save.
    """
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """What the run was told by the system since it started; a second Ctrl-C is obeyed at once."""

    def __init__(self) -> None:
        self.heard = 0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Take over from whoever listens now; only a main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in STOPS}

    def leave(self) -> None:
        """Give back to those who listened before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def raise_if(self, heard: int) -> None:
        """End the run in the way of the signal that was heard; 0: none was."""
        if heard == signal.SIGTERM:
            raise TerminatedError
        if heard:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.heard:
                raise KeyboardInterrupt
            if os.environ.get("LOCAL_RANK", "0") == "0":  # one of several says it for all
                os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        self.heard = number
