"""Tables on disk: rows of names and values, read and written whole."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaseg.whole_files import whole_file

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read a table, every value as text; no rows where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a table with the names of the first row as its head."""
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
