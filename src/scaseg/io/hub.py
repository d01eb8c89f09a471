"""Files of the Hugging Face hub: from its cache, else downloaded; offline is noticed at once."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scaseg.errors import UserError


def is_repository(name: str | Path) -> bool:
    """Whether a name can only be a repository of the hub: user/model, and nothing here."""
    is_id = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None
    return is_id and not os.path.lexists(name)


def download(repository: str, *files: str, **options: Any) -> Path:
    """Return the folder with these files of a repository; UserError where they cannot be had.

    options: of huggingface_hub.snapshot_download: revision, token, cache_dir, ...
    """
    from huggingface_hub import constants, snapshot_download

    try:
        with suppress(FileNotFoundError):  # LocalEntryNotFoundError: not in the cache
            found = Path(snapshot_download(repository, **{**options, "local_files_only": True}))
            whole = all((found / name).is_file() for name in files)
            if whole and not options.get("force_download"):
                return found
        if not options.get("local_files_only"):
            _probe(constants.ENDPOINT)  # the hub's client would retry for half a minute first
        return Path(snapshot_download(repository, allow_patterns=list(files), **options))
    except Exception as error:  # whatever its client and the network come up with
        problem = "not here, and cannot be downloaded from the Hugging Face hub"
        remedy = f"check its name, or fetch {' and '.join(files)} elsewhere and give the path"
        raise UserError(repository, problem, remedy, type(error).__name__) from error


def _probe(address: str) -> None:
    """Raise OSError within two seconds if nothing answers there."""
    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return  # the way out is somebody else's business
    parts = urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    socket.create_connection((parts.hostname or "", port), timeout=2).close()
