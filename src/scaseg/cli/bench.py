"""scaseg bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from scaseg.cli.parser import Parser, positive
from scaseg.errors import UserError


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "bench",
        help="time selective context against attention and convolutions, side by side",
        description="Time one block's worth of context, side by side in one run: the literal "
        "reference, dense, linear, PyTorch's attention, and two 1x1 convolutions.",
        epilog="example: scaseg bench --sizes 1024,3136,8192 --channels 256",
    )
    option = parser.add_argument
    about = "numbers of neurons, separated by commas (default: %(default)s)"
    option("--sizes", type=_sizes, default="1024,3136,8192", metavar="N,N,...", help=about)
    about = "channels of the context features (default: %(default)s)"
    option("--channels", type=positive, default=256, metavar="M", help=about)
    about = "features that the literal reference concatenates; it is run up to 1024 neurons "
    about += "(default: %(default)s)"
    option("--hidden", type=positive, default=64, metavar="K", help=about)
    about = "timed runs of each, of which the median is shown (default: %(default)s)"
    option("--repeats", type=positive, default=7, metavar="N", help=about)
    devices, about = ("auto", "cpu", "cuda"), "where to measure (default: %(default)s)"
    option("--device", choices=devices, default="cpu", help=about)
    option("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    from scaseg.bench import run

    run(
        options.sizes,
        channels=options.channels,
        hidden=options.hidden,
        repeats=options.repeats,
        device=options.device,
        as_json=options.json,
    )


def _sizes(text: str) -> list[int]:
    try:
        return [positive(part.strip()) for part in text.split(",")]
    except UserError as error:
        raise UserError("", repr(text), "give whole numbers >= 1 separated by commas") from error
