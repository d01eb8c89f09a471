"""scaseg data look."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.data_options import add_dataset, print_text, read_dataset
from scaseg.cli.parser import Parser, add_option
from scaseg.errors import plural
from scaseg.io.ownership import check_result


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "look",
        help="write a page of photographs with their labels over them",
        description="Write one HTML file to look at before training: photographs with their labels "
        "over them, some for every problem that `scaseg data check` finds and for every class. It "
        "opens in any browser, without a server or a network.",
        epilog="example: scaseg data look photos --out photos.html",
    )
    add_dataset(parser)
    option = partial(add_option, parser)
    option("--out FILE", "(%(default)s)", type=Path, default=Path("data.html"))
    option("--overwrite", "replace a page that is there")
    option("--per-class N", "photographs a class (6)", default=6)
    option("--workers N", "files read at once (number of cores)")
    option("--quiet", "print nothing, no progress")
    parser.set_defaults(run=_look)


def _look(options: argparse.Namespace) -> None:
    from scaseg.data.validation.check import read_data, report_on
    from scaseg.io.atomic import write_text
    from scaseg.plots.data_page import check_page
    from scaseg.progress import progress_bar

    out: Path = options.out
    check_result("--out", out, overwrite=options.overwrite)
    dataset, settings = read_dataset(options)
    with progress_bar("reading", shown=not options.quiet) as progress:
        reading = read_data(
            dataset, options.folder, workers=options.workers, progress=progress, **settings
        )
    report = report_on(reading)
    write_text(out, check_page(reading, report, per_class=options.per_class))
    if not options.quiet:
        counts = (report.errors, "error"), (report.warnings, "warning")
        found = " and ".join(plural(len(some), noun) for some, noun in counts)
        classes = plural(len(report.classes), "class")
        print_text(f"{out}: {classes}, {found} shown; open it in a browser")
