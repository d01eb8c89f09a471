"""Rows of Parquet and Arrow files by strangers, one at a time (pyarrow: the extra `data`)."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from scaseg.data.decode.files import open_untrusted
from scaseg.errors import UserError
from scaseg.io.paths import cached_by_file

MOST_BYTES = 1 << 32  # of a group of rows, unpacked; photographs are written by 100
# bytes held of all files together: a shuffled dataset asks many files, each for another group
MOST_HELD = 1 << 30
HELD = 4  # always: photographs and label maps, those of two readers
_REMEDY = "fetch it again"


class Table:
    """A file of rows; `columns` are the types of its columns by name, in Arrow's words.

    `features` are what Hugging Face says of them, empty if nothing.

    Groups of rows are read when they are first asked for, and the last ones are held (MOST_HELD):
    rows that follow each other cost one reading. For several threads.
    """

    def __init__(self, path: Path) -> None:
        if not is_readable():
            raise UserError(path, "needs pyarrow", "install it: pip install 'scaseg[data]'")
        import pyarrow

        self.path = path
        self._lock = threading.Lock()
        self._parquet: Any = None
        with open_untrusted(path, _REMEDY):
            if path.suffix == ".parquet":
                self._parquet = pyarrow.parquet.ParquetFile(path)
                self.schema = self._parquet.schema_arrow
                metadata = self._parquet.metadata
                counts = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
            else:  # mapped, so that only what is read is loaded
                reader = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path)))
                self.schema, self._batches = reader.schema, list(reader)
                counts = [batch.num_rows for batch in self._batches]
            if any(count < 0 for count in counts):
                raise ValueError("a negative number of rows")
            self.columns = {field.name: str(field.type) for field in self.schema}
        self._starts = [0, *accumulate(counts)]
        self.features = _features(self.schema)

    def __len__(self) -> int:
        return self._starts[-1]

    def value(self, row: int, column: str) -> Any:
        """Return a value as Python has it: a number, a list, a mapping, bytes."""
        group = bisect_right(self._starts, row) - 1
        with self._lock, open_untrusted(self.path, _REMEDY):
            return self._column(group, column)[row - self._starts[group]].as_py()

    def _column(self, group: int, column: str) -> Any:
        key = (self, group, column)
        with _holding:
            if key in _held:
                _held.move_to_end(key)
                return _held[key]
        if self._parquet is None:
            found = self._batches[group].column(column)
        else:
            # not the sizes of its columns: pyarrow ends the process where these are damaged
            if self._parquet.metadata.row_group(group).total_byte_size > MOST_BYTES:
                raise UserError("", f"more than {MOST_BYTES} bytes in a group of rows", "split it")
            found = self._parquet.read_row_group(group, columns=[column]).column(column)
        found.validate(full=True)  # wrong offsets of a damaged file would end the process
        with _holding:
            _held[key] = found
            while len(_held) > HELD and sum(one.nbytes for one in _held.values()) > MOST_HELD:
                _held.popitem(last=False)
        return found


_holding = threading.Lock()
_held: OrderedDict[tuple[Table, int, str], Any] = OrderedDict()  # groups of rows, by column


@cached_by_file(64)  # open files; a dataset of many is read from first to last
def open_table(path: Path) -> Table:
    """Open a file, or return what is open; UserError if it is none, or pyarrow is missing."""
    return Table(path)


def is_readable() -> bool:
    """Whether pyarrow is there."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        return False
    return pyarrow is not None


def _features(schema: Any) -> dict[str, Any]:
    """Return what the metadata of a schema say of each column."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        found = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        if isinstance(found, dict):
            return found
    return {}
