"""The command line: one file per command; heavy imports wait until one is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scaseg import __version__
from scaseg.cli.bench import add_bench
from scaseg.cli.parser import Parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit codes: 0 done, 1 a fault during work, 2 bad input, 130 Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.run(options, parser)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _parser() -> Parser:
    parser = Parser(
        prog="scaseg",
        description="Scene segmentation with selective context: every neuron takes its context "
        "from all the others, weighted by coefficients predicted from the image.",
        epilog="example: scaseg bench --sizes 1024,4096",
    )
    parser.add_argument("--version", action="version", version=f"scaseg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_bench(commands.add_parser)
    return parser
