"""make results: tables, pictures and the marked places of pages, all from the CSVs beside them.

--check changes nothing and exits with 1 where something is not what the CSVs give.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from making import blocks, costs, depth, identity, outdoor, overview, own_folder, paper, scale  # noqa: F401  (they register what fills the marks)
from making.marks import Page, filled
from making.pictures import draw_pictures, stale_pictures
from making.studies import Study, find_studies

from scaseg.comparison.tables import CSV_TABLE, TABLE, write_tables
from scaseg.errors import UserError

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    """Write everything, or check it; exit code 1 where something differs or cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, name what differs")
    check = parser.parse_args(arguments).check
    try:
        studies = find_studies(root / "docs" / "results")
        texts = dict(made_texts(root, studies))
    except UserError as error:
        sys.exit(f"error: {error}")
    if not check:
        draw_pictures(studies)
        for path, text in texts.items():
            if not same(path, text):
                path.write_bytes(text.encode())
                print(f"wrote {path.relative_to(root)}")
        return
    stale = [path for path, text in texts.items() if not same(path, text)]
    stale += stale_pictures(studies)
    for path in stale:
        print(f"{path.relative_to(root)}: not what the CSVs give", file=sys.stderr)
    if stale:
        sys.exit(f"error: {len(stale)} files differ; run `make results`")


def made_texts(root: Path, studies: dict[str, Study]) -> Iterator[tuple[Path, str]]:
    """Every table, and every page that has marks, as the CSVs give it."""
    for study in studies.values():
        with tempfile.TemporaryDirectory() as place:
            write_tables(study.summaries, study.rows, Path(place))
            for name in (TABLE, CSV_TABLE):
                yield study.folder / name, (Path(place) / name).read_bytes().decode()
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        if path.name in (TABLE, "log.md"):
            continue
        yield path, filled(path.read_bytes().decode(), Page(path, root, studies))


def same(path: Path, text: str) -> bool:
    """Whether a file says this; numbers may differ in digits that depend on the machine."""
    if not path.is_file():
        return False
    found = path.read_bytes().decode()
    if path.name != CSV_TABLE:
        return found == text
    here, there = (list(csv.reader(StringIO(one, newline=""))) for one in (found, text))
    return len(here) == len(there) and all(
        len(one) == len(other) and all(map(_close, one, other))
        for one, other in zip(here, there, strict=True)
    )


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=1e-9)
    except ValueError:
        return one == other


if __name__ == "__main__":
    main()
