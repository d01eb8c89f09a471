"""scaseg demo."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.parser import Parser, add_option
from scaseg.io.paths import check_folder


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "demo",
        help="see it work: train, evaluate, predict and explain on generated scenes",
        description="Train three small networks in parallel on generated scenes, evaluate them on "
        "others, and write a report with a table, pictures and dependency maps. Needs no data, no "
        "weights, no GPU, and about three minutes on two cores.",
        epilog="example: scaseg demo --out demo",
    )
    option = partial(add_option, parser)
    option("--out DIR", "where all goes (demo)", default="demo")
    option("--epochs N", "fewer are quicker (10)")
    option("--images N", "training scenes (1200)")
    option("--overwrite", "replace an earlier demo")
    option("--quiet", "the table alone")
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> None:
    check_folder("--out", options.out)
    # scenes are small: threads would spend their time waiting for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from scaseg.demo.report import PAGE, PICTURE, table
    from scaseg.demo.run import SCENES, model_folder, run_demo

    sizes = {"epochs": options.epochs, "images": options.images}
    findings = run_demo(
        options.out,
        overwrite=options.overwrite,
        log=lambda line: None if options.quiet else print(line, file=sys.stderr),
        bars=not options.quiet,
        **{name: value for name, value in sizes.items() if value is not None},
    )
    print(f"\n{table(findings.rows)}\n")
    folder = Path(options.out)
    scene = next(iter(sorted((folder / SCENES).iterdir())))
    print(f"picture: {folder / PICTURE}")
    print(f"report:  {folder / PAGE} (opens in any browser, offline)")
    model = model_folder(folder, findings.rows[-1].context)
    # as it was called: a .venv need not be active
    program = "scaseg" if shutil.which("scaseg") else os.path.relpath(sys.argv[0])
    words = [program, "explain", str(scene), "--model", str(model), "--point", "64,72"]
    print(f"try:     {shlex.join([*words, '--out', 'why.png'])}")
