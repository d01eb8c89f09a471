"""Places to write to: what cannot be one is refused before any work."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from scaseg.errors import UserError
from scaseg.io.atomic import temporary_beside


def check_folder(option: str, folder: str | Path) -> None:
    """Refuse a place where no folder can be made; UserError names the option."""
    folder = Path(folder)
    for place in (folder, *folder.parents):
        try:
            mode = os.stat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue  # to be made, in what comes next
        except OSError as fault:  # a name too long, links that loop
            raise not_writable(option, folder, fault) from fault
        if not stat.S_ISDIR(mode):
            raise UserError(option, f"{place} is a file", "give a folder")
        return


def check_file(option: str, path: str | Path, *, overwrite: bool) -> None:
    """Refuse a file that exists or could not be written; UserError names the option."""
    path = Path(path)
    if os.path.isdir(path):  # not Path's own, which raises where a name is too long
        raise UserError(option, f"{path} is a folder", "give a file")
    if os.path.exists(path) and not overwrite:
        raise UserError(option, f"{path} is there already", "use --overwrite, or another name")
    trial = temporary_beside(path)
    try:
        path.is_symlink()  # raises where the name is too long
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as fault:
        raise not_writable(option, path, fault) from fault


def not_writable(option: str, place: str | Path, fault: OSError) -> UserError:
    """The error for a place where nothing can be written."""
    problem = f"{place} cannot be written ({fault.strerror or fault})"
    return UserError(option, problem, "give another place")
