"""Processes, as Linux shows them."""

import random
import socket
import time
from contextlib import suppress
from pathlib import Path


def is_alive(pid):
    """Whether a process is there; one that has ended and nobody asked about is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true, process=None, seconds=240):
    """Wait for a condition, which a process that has ended would not bring about any more."""
    end = time.monotonic() + seconds
    while not true():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def free_port():
    """A port that stays free until a command takes it, seconds later.

    Below those that Linux gives to whoever asks for any, and above those of Ray's workers.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
