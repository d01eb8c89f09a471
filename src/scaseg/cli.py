"""The command line: one function per command; heavy imports wait until one is called."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from scaseg import __version__


class Parser(argparse.ArgumentParser):
    """Answers bad input with one line on stderr, `error: <option>: <what came>; <what fits>`."""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^arguments? (\S+?):? ", r"\1: ", message)
        if "; " not in message:
            message = f"{message}; see {self.prog} --help"
        self.exit(2, f"error: {message}\n")


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
    _add_bench(commands.add_parser)
    return parser


def _add_bench(add: Callable[..., Parser]) -> None:
    parser = add(
        "bench",
        help="time selective context against attention and convolutions, side by side",
        description="Time one block's worth of context, side by side in one run: the literal "
        "reference, dense, linear, PyTorch's attention, and two 1x1 convolutions.",
        epilog="example: scaseg bench --sizes 1024,3136,8192 --channels 256",
    )
    parser.add_argument(
        "--sizes",
        type=_whole_numbers,
        default="1024,3136,8192",
        metavar="N,N,...",
        help="numbers of neurons, separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--channels",
        type=_positive,
        default=256,
        metavar="M",
        help="channels of the context features (default: %(default)s)",
    )
    parser.add_argument(
        "--hidden",
        type=_positive,
        default=64,
        metavar="K",
        help="features that the literal reference concatenates; it is run up to 1024 neurons "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=_positive,
        default=7,
        metavar="N",
        help="timed runs of each, of which the median is shown (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="cpu",
        help="where to measure (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace, parser: Parser) -> None:
    """Time selective context against what else is there."""
    import torch

    from scaseg.bench import run

    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: cuda is not available here; choose cpu")
    run(
        options.sizes,
        channels=options.channels,
        hidden=options.hidden,
        repeats=options.repeats,
        device=torch.device(device),
        as_json=options.json,
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number >= 1")
    return int(text)


def _whole_numbers(text: str) -> list[int]:
    try:
        return [_positive(part.strip()) for part in text.split(",")]
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(
            f"{text!r}; give whole numbers >= 1 separated by commas"
        ) from fault


if __name__ == "__main__":
    main()
