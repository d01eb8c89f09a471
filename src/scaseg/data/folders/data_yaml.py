"""data.yaml of Ultralytics: the names of the classes, and the folders of the splits."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from scaseg.config.reading import parse
from scaseg.errors import UserError, located
from scaseg.io.paths import cached_by_file, open_regular

MOST_BYTES = 1 << 20


def find_yaml(root: Path) -> Path | None:
    """Return data.yaml or dataset.yaml of a folder, or its only YAML file."""
    found = [path for path in sorted(root.glob("*.y*ml")) if path.suffix in (".yaml", ".yml")]
    named = [path for path in found if path.stem in ("data", "dataset")] or found
    return named[0] if len(named) == 1 else None


@cached_by_file(16)  # it is asked for by every photograph
def read_yaml(path: Path) -> dict[Any, Any]:
    """Read such a file; UserError if it is none."""
    with located(path):
        with open_regular(path) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise UserError("", f"more than {MOST_BYTES} bytes", "give the dataset's own file")
        try:
            data = parse(text.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise UserError("", "not UTF-8 text", "save it so", str(error)) from error
        if not isinstance(data, dict):
            raise UserError("", "no mapping", "give names, train and val")
    return data


def class_list(names: Any) -> list[str] | None:
    """Return the names of the classes, 0 first, given as a list or by number; None: as neither."""
    if isinstance(names, dict) and names.keys() == set(range(len(names))):
        names = [names[number] for number in range(len(names))]
    return [str(name) for name in names] if isinstance(names, list) and names else None


def yaml_classes(root: Path) -> tuple[str, ...] | None:
    """Return the classes that data.yaml of a folder names; None if there is none that does."""
    with suppress(UserError, OSError):  # a YAML file of another purpose may be anything
        path = find_yaml(root)
        names = None if path is None else class_list(read_yaml(path).get("names"))
        return None if names is None else tuple(names)
    return None
