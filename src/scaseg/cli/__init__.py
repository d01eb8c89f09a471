"""The command line: one file per command; heavy imports wait until one is called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scaseg import __version__
from scaseg.cli.bench import add_bench
from scaseg.cli.compare import add_compare
from scaseg.cli.data import add_data
from scaseg.cli.demo import add_demo
from scaseg.cli.evaluate import add_evaluate
from scaseg.cli.explain import add_explain
from scaseg.cli.keys import split_keys, unknown_key
from scaseg.cli.parser import Parser
from scaseg.cli.predict import add_predict
from scaseg.cli.train import add_train


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit codes: 0 done, 1 a fault during work, 2 bad input, 130 Ctrl-C."""
    parser = _parser()
    try:
        rest, keys = split_keys(sys.argv[1:] if arguments is None else arguments)
    except argparse.ArgumentTypeError as fault:
        parser.error(str(fault))
    options = parser.parse_args(rest)
    if keys and not getattr(options, "takes_keys", False):
        parser.error(f"--{next(iter(keys))}: this command has no such option")
    if keys and (fault_of_key := unknown_key(keys)):
        parser.error(fault_of_key)
    options.config_keys = keys
    try:
        options.run(options, parser)
    except BrokenPipeError:  # | head has seen enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        parser.fail(1, f"{where}{fault.strerror or fault}; give another place")
    except (MemoryError, RuntimeError) as fault:
        if not _is_want_of_memory(fault):
            raise
        parser.fail(1, f"out of memory ({str(fault) or 'no more'}); use smaller images or networks")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _is_want_of_memory(fault: BaseException) -> bool:
    """Whether that is what Python, NumPy or torch mean."""
    said = str(fault).lower()
    return isinstance(fault, MemoryError) or "allocate memory" in said or "out of memory" in said


def _parser() -> Parser:
    parser = Parser(
        prog="scaseg",
        description="Scene segmentation with selective context: every neuron takes its context "
        "from all the others, weighted by coefficients predicted from the image.",
        epilog="example: scaseg predict photo.jpg --overlay; that is by the built-in model of "
        "outdoor scenes, scaseg train recipes/own_folder.yaml --data photos --out runs/first makes "
        "one of yours; COMMAND --help has more",
    )
    parser.add_argument("--version", action="version", version=f"scaseg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        add_demo,
        add_train,
        add_evaluate,
        add_predict,
        add_explain,
        add_compare,
        add_data,
        add_bench,
    ):
        add(commands.add_parser)
    return parser
