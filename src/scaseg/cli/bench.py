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
    import torch

    from scaseg.bench import run

    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: cuda is not available here; choose cpu")
    from scaseg.system import available_memory, in_words

    # what goes in and what comes out, forward and backward: less it cannot be
    needed, free = (
        16 * max(options.sizes) * options.channels,
        available_memory(torch.device(device)),
    )
    if free is not None and needed > free:
        parser.error(
            f"--sizes: {max(options.sizes)} with --channels {options.channels} take more than "
            f"{in_words(needed)}, but {in_words(free)} are free; give less"
        )
    run(
        options.sizes,
        channels=options.channels,
        hidden=options.hidden,
        repeats=options.repeats,
        device=torch.device(device),
        as_json=options.json,
    )
