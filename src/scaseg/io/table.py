"""CSV tables on disk: rows of names and values, read and written whole."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaseg.errors import UserError
from scaseg.io.atomic import whole_file

Row = dict[str, Any]


def read_rows(path: Path, *, columns: Sequence[str] = ()) -> list[Row]:
    """Read a table, every value as text; no rows where there is no file.

    UserError where it is no table, or has not these columns, the first of whole numbers.
    """
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # Excel writes the mark
            rows: list[Row] = list(csv.DictReader(file, strict=True))
        for row in rows:
            if None in row or None in row.values():
                raise ValueError("a row is longer or shorter than the first")
            if columns:
                first, *_ = (row[name] for name in columns)
                int(first)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise UserError(path, "not a table of ours", "remove it", str(error)) from error
    return rows


def read_numbers(path: Path, *, columns: Sequence[str] = ()) -> list[Row]:
    """Read a table with its numbers as numbers, and None where there is nothing."""
    rows = read_rows(path, columns=columns)
    return [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> int | float | str | None:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text or None


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a table with the names of the first row as its head."""
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
