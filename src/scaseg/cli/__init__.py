"""The command line: one file per command; heavy imports wait until one is called."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from scaseg.cli.options import let_in_contexts
from scaseg.cli.parser import Parser
from scaseg.cli.settings import check_keys, split_keys
from scaseg.errors import LONGEST_REMEDY, UserError, WorkError, one_line
from scaseg.version import __version__

# each a module here, in the order of the help
COMMANDS = (
    *("demo", "train", "evaluate", "predict", "explain", "explore", "serve", "export", "compare"),
    *("contexts", "data", "recipes", "bench", "doctor", "completion"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit codes: 0 done, 1 a fault during work, 2 bad input, 130 Ctrl-C."""
    try:
        rest, keys = split_keys(sys.argv[1:] if arguments is None else arguments)
        options = build_parser(next(iter(rest), None)).parse_args(rest)
        if keys:
            check_keys(keys, getattr(options, "reads_keys", ()))
        options.config_keys = keys
        let_in_contexts(options)
        options.run(options)
    except UserError as error:
        fail(2, error)
    except WorkError as error:
        fail(1, error)
    except BrokenPipeError:  # | head has read enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        fail(1, WorkError(error.filename or "", error.strerror or str(error), "give another place"))
    except (MemoryError, RuntimeError) as error:
        # RuntimeError is how NumPy and torch say it
        known = re.search("(out of|allocate) memory", str(error), re.IGNORECASE)
        if known is None and not isinstance(error, MemoryError):
            raise
        detail, remedy = str(error) or "no more", "use smaller images or networks"
        fail(1, WorkError("", "out of memory", remedy, detail))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def fail(code: int, error: UserError | WorkError) -> NoReturn:
    """End with one line on stderr, whatever files have put into the message."""
    text = one_line(str(type(error)(error.place, error.problem, "", error.detail)))
    if error.remedy:
        text += f"; {one_line(error.remedy, LONGEST_REMEDY)}"
    sys.stderr.write(f"error: {text}\n")
    sys.exit(code)


def build_parser(command: str | None = None) -> Parser:
    """The parser of one command, or of all where it is not known which."""
    parser = Parser(
        prog="scaseg",
        description="Scene segmentation with selective context: every neuron takes its context "
        "from all the others, weighted by coefficients predicted from the image.",
        epilog="example: scaseg predict photo.jpg --overlay; that uses the built-in model of "
        "outdoor scenes; scaseg train own_folder --data photos --out runs/first trains one of "
        "yours; COMMAND --help has more",
    )
    parser.add_argument("--version", action="version", version=f"scaseg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        import_module(f"scaseg.cli.{name}").add_command(commands.add_parser)
    return parser
