"""Places to write to: what cannot be one is refused before any work."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from scaseg.io.atomic import temporary_beside


def check_folder(option: str, folder: str | Path) -> None:
    """Refuse a place where no folder can be made; ValueError names the option."""
    folder = Path(folder)
    for place in (folder, *folder.parents):
        try:
            mode = os.stat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue  # to be made, in what comes next
        except OSError as fault:  # a name too long, links that circle
            raise _unfit(option, folder, fault) from fault
        if not stat.S_ISDIR(mode):
            raise ValueError(f"{option}: {place} is a file; give a folder")
        return


def check_file(option: str, path: str | Path) -> None:
    """Refuse a file that could not be written in its folder; ValueError names the option."""
    path = Path(path)
    trial = temporary_beside(path)
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except OSError as fault:
        raise _unfit(option, path, fault) from fault
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as fault:
        raise _unfit(option, path, fault) from fault


def cannot_be_written(option: str, place: str | Path, fault: OSError) -> str:
    """Say why nothing can be written there."""
    return f"{option}: {place} cannot be written ({fault.strerror or fault}); give another place"


def _unfit(option: str, place: Path, fault: OSError) -> ValueError:
    return ValueError(cannot_be_written(option, place, fault))
