"""Signals that end a run: obeyed once the current step is done and the state is saved.

Lightning's own SIGTERM handling ends after a batch without saving, and it leaves Ctrl-C alone.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

# SIGUSR1 is what scripts for SLURM often ask for before the time is up; Windows has none
STOPS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))


class TerminatedError(SystemExit):
    """The run received SIGTERM or SIGUSR1 and saved its state; the exit code is 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def ignore_signals(worker: int) -> None:
    """Ignore signals in a loader's worker; the process that it works for ends it.

    Supervisors send SIGTERM, and terminals Ctrl-C, to a whole group: without its workers a run
    could not finish the step that it wants to save.
    """
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """Records signals instead of obeying them, except for a second Ctrl-C."""

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Replace the current handlers; only possible in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in STOPS}

    def restore(self) -> None:
        """Put the previous handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    @staticmethod
    def obey(received: int) -> None:
        """End the run as the received signal asks; 0: there was none."""
        if received == signal.SIGINT:
            raise KeyboardInterrupt
        if received:
            raise TerminatedError

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.received:
                raise KeyboardInterrupt
            if os.environ.get("LOCAL_RANK", "0") == "0":
                os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        self.received = number
