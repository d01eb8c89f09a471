"""scaseg bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from scaseg.cli.parser import Parser, positive, whole_numbers


def add_bench(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "bench",
        help="time selective context against attention and convolutions, side by side",
        description="Time one block's worth of context, side by side in one run: the literal "
        "reference, dense, linear, PyTorch's attention, and two 1x1 convolutions.",
        epilog="example: scaseg bench --sizes 1024,3136,8192 --channels 256",
    )
    parser.add_argument(
        "--sizes",
        type=whole_numbers,
        default="1024,3136,8192",
        metavar="N,N,...",
        help="numbers of neurons, separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--channels",
        type=positive,
        default=256,
        metavar="M",
        help="channels of the context features (default: %(default)s)",
    )
    parser.add_argument(
        "--hidden",
        type=positive,
        default=64,
        metavar="K",
        help="features that the literal reference concatenates; it is run up to 1024 neurons "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=positive,
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
    from scaseg.bench import run

    run(
        options.sizes,
        channels=options.channels,
        hidden=options.hidden,
        repeats=options.repeats,
        device=options.device,
        as_json=options.json,
    )
