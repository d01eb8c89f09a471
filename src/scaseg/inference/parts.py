"""Results of many images in one file: Parquet, or tar as WebDataset has it; whole or not at all.

part-000012.parquet holds the files that predict would write, byte by byte: columns `name` (as the
label map would be called, without its suffix), `image` (where it was read), `labels` (the PNG), and
`overlay`, `scores`, `areas`, `confidence` where they were asked for. In a tar file they are
NAME.png and so on; of NAME's last part dots are %2E, since WebDataset divides names there.

A part is named after its number, and its number after its images: made twice, it is there once.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, get_args
from urllib.parse import unquote

from scaseg.errors import UserError
from scaseg.inference.outputs import AREAS, CONFIDENCE, LABELS, OVERLAY, PART, SCORES, Outputs
from scaseg.inference.sources import InputFile
from scaseg.io.atomic import whole_file
from scaseg.io.ownership import MARK

Format = Literal["png", "parquet", "webdataset"]
FORMATS: tuple[str, ...] = get_args(Format)
SUFFIXES = {"parquet": ".parquet", "webdataset": ".tar"}
COLUMNS = {LABELS: "labels", OVERLAY: "overlay", SCORES: "scores", AREAS: "areas"}
COLUMNS[CONFIDENCE] = "confidence"
ROWS = 64  # of a group of rows: what a reader unpacks at once


class Parts:
    """The parts in a folder: which images they hold, and what the next one is called.

    shard: of predict, in the names: machines that share the work write parts of their own.
    """

    def __init__(self, folder: Path, file_format: Format, shard: tuple[int, int] | None) -> None:
        self.folder, self.suffix = folder, SUFFIXES[file_format]
        self._prefix = PART if shard is None else f"{PART}{shard[0]}of{shard[1]}-"
        self.paths = sorted(folder.glob(f"{PART}*{self.suffix}"))
        own = re.compile(rf"{self._prefix}(\d+){re.escape(self.suffix)}")
        numbers = [int(found[1]) for path in self.paths if (found := own.fullmatch(path.name))]
        self._done: set[int] = set()
        self._next = max(numbers, default=-1) + 1

    def name(self, number: int) -> str:
        """What the part that holds the number-th images of this run is called."""
        return f"{self._prefix}{self._next + number:06}{self.suffix}"

    def check(self, inputs: Iterable[InputFile], *, skip_existing: bool) -> tuple[int, int]:
        """Refuse what would come twice; count what is to do, and what exists."""
        if self.paths and not skip_existing:
            remedy = "use --skip-existing to continue, or another folder"
            raise UserError(self.paths[0], "exists already", remedy)
        self._done = {_key(name) for path in self.paths for name in part_names(path)}
        to_do = existing = 0
        taken: set[int] = set()
        for file in inputs:
            key = _key(file.name)
            if key in taken:
                problem = f"would be {file.name}, and so would another image"
                raise UserError(file.path, problem, "rename one, or predict them into two folders")
            taken.add(key)
            is_there = self.exists(file.name)
            to_do, existing = to_do + (not is_there), existing + is_there
        return to_do, existing

    def exists(self, name: PurePath) -> bool:
        """Whether the results of an image are in a part that was there."""
        return _key(name) in self._done


def part_names(path: Path) -> Iterator[PurePath]:
    """The names of the images whose results a part holds; UserError where it is none."""
    try:
        if path.suffix == ".tar":
            with tarfile.open(path, "r:") as tar:
                found = [entry.name.removesuffix(LABELS) for entry in tar]
            # a label map has one dot, before its suffix: NAME.confidence.png has two
            names = [_unquoted(name) for name in found if "." not in PurePath(name).name]
        else:
            names = _parquet(path).read_table(path, columns=["name"])["name"].to_pylist()
    except UserError:
        raise
    except Exception as error:  # of whatever is wrong with it
        raise UserError.cannot_be(
            "read", path, error, "remove it, or give another folder"
        ) from error
    yield from map(PurePath, names)


def write_part(
    path: Path, outputs: Outputs, files: Sequence[InputFile], file_format: Format
) -> None:
    """Pack what was written for some images into one file, in their order."""
    with whole_file(path) as temporary:
        if file_format == "webdataset":
            with tarfile.open(temporary, "w") as tar:
                for file in files:
                    for one in outputs.paths(file.name):
                        suffix = one.name.removeprefix(file.name.name)
                        _add(tar, _quoted(file.name) + suffix, one.read_bytes())
            return
        parquet = _parquet(path)
        import pyarrow

        table: dict[str, Any] = {
            "name": [_text(file.name.as_posix()) for file in files],
            "image": [_text(os.fspath(file.path)) for file in files],
        }
        for suffix in (one for one in COLUMNS if outputs.path(files[0].name, one).exists()):
            values = [outputs.path(file.name, suffix).read_bytes() for file in files]
            table[COLUMNS[suffix]] = pyarrow.array(values, pyarrow.large_binary())
        made = pyarrow.table(table).replace_schema_metadata({"software": MARK})
        # PNGs and JPEGs are packed already
        parquet.write_table(made, temporary, row_group_size=ROWS, compression="none")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)  # no time, no owner: the same results, the same file
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _quoted(name: PurePath) -> str:
    last = name.name.replace("%", "%25").replace(".", "%2E")
    return name.with_name(last).as_posix()


def _unquoted(text: str) -> str:
    folder, slash, last = text.rpartition("/")
    return f"{folder}{slash}{unquote(last, errors='surrogateescape')}"


def _key(name: PurePath) -> int:
    return hash(_text(name.as_posix()))  # of a million names a number each


def _text(name: str) -> str:
    r"""A name as Unicode; bytes of it that are not UTF-8 as \xff."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        remedy = "install it: pip install 'scaseg[data]'"
        raise UserError(path, "needs pyarrow", remedy) from error
    return pyarrow.parquet
