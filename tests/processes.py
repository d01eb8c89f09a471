"""Processes, as Linux shows them."""

from pathlib import Path


def is_alive(pid):
    """Whether a process is there; one that has ended and nobody asked about is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
