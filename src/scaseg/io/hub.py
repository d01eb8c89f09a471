"""The Hugging Face hub: files fetched or found in its cache, without long silence."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scaseg.errors import UserError

PATIENCE = 3.0  # seconds without a word
OFFLINE = "HF_HUB_OFFLINE"


def download(repository: str, *files: str, optional: tuple[str, ...] = (), **options: Any) -> Path:
    """Return the folder with these files of a repository, from the hub's cache or downloaded.

    UserError where they cannot be had; offline is noticed at once. optional: fetched too where the
    repository has them. options: of huggingface_hub.snapshot_download: revision, token, cache_dir,
    ...
    """
    from huggingface_hub import constants, snapshot_download

    found: Path | None = None
    try:
        with suppress(FileNotFoundError):  # LocalEntryNotFoundError: not in the cache
            local = {**options, "local_files_only": True, "allow_patterns": list(files)}
            found = Path(snapshot_download(repository, **local))
            if _is_whole(found, files) and not options.get("force_download"):
                return found
        if not options.get("local_files_only") and not constants.HF_HUB_OFFLINE:
            with reaching(f"{' and '.join(files)} of {repository}"):
                probe(constants.ENDPOINT)  # the hub's client would retry for half a minute first
                wanted = [*files, *optional]
                found = Path(snapshot_download(repository, allow_patterns=wanted, **options))
        if found is None or not _is_whole(found, files):
            raise FileNotFoundError(repository)
        return found
    except Exception as error:  # whatever its client and the network come up with
        problem = "not here, and cannot be downloaded from the Hugging Face hub"
        remedy = f"check its name, or fetch {' and '.join(files)} elsewhere and give the path"
        if constants.HF_HUB_OFFLINE:
            problem = f"not in the hub's cache, and {OFFLINE} is set"
            remedy = f"unset {OFFLINE}, or fetch {' and '.join(files)} elsewhere and give the path"
        raise UserError(repository, problem, remedy, type(error).__name__) from error


def _is_whole(folder: Path, files: tuple[str, ...]) -> bool:
    return all((folder / name).is_file() for name in files)


@contextmanager
def reaching(what: str) -> Iterator[None]:
    """Say on stderr what is waited for, where it takes longer than PATIENCE."""
    line = f"waiting for the Hugging Face hub: {what}"
    timer = threading.Timer(PATIENCE, print, [line], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def probe(address: str) -> None:
    """Raise OSError within three seconds if nothing answers there."""
    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return  # the way out is somebody else's business
    parts = urlsplit(address)
    place = (parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
    faults: list[OSError] = []

    def connect() -> None:
        try:
            socket.create_connection(place, timeout=2).close()
        except OSError as fault:
            faults.append(fault)

    # in a thread: looking up a name has no timeout, and may take half a minute
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise TimeoutError(f"{place[0]} does not answer")
    if faults:
        raise faults[0]
