"""scaseg bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.parser import Parser, positive
from scaseg.errors import UserError
from scaseg.io.paths import check_folder
from scaseg.registry import HEADS
from scaseg.system import PRECISIONS

SIZES = {"contexts": [784, 3136], "step": [448]}


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "bench",
        help="time selective context against attention and convolutions, side by side",
        description="Time selective context against its alternatives, side by side in one run: "
        "the operator on tensors, the block or every context on a feature map, or a training step "
        "of the paper's network.",
        epilog="example: scaseg bench --what block --sizes 3136,8192 --channels 256 --out timings",
    )
    option = parser.add_argument
    about = "operator: the literal reference, dense, linear, attention, two 1x1 convolutions; "
    about += "block: sca with four activations, average, non-local blocks, sca's own 1x1 "
    about += "convolutions; contexts: all of `scaseg contexts`; step: VGG16 with none, "
    about += "average, sca (default: %(default)s)"
    kinds = ("operator", "block", "contexts", "step")
    option("--what", choices=kinds, default="operator", metavar="KIND", help=about)
    about = "numbers of neurons, or sides of the images of a step, separated by commas (default: "
    about += "1024,3136,8192; contexts 784,3136; step 448)"
    option("--sizes", type=_sizes, metavar="N,N,...", help=about)
    about = "images in a batch (default: %(default)s)"
    option("--batch", type=positive, default=1, metavar="N", help=about)
    about = "channels of the features (default: %(default)s)"
    option("--channels", type=positive, default=256, metavar="M", help=about)
    about = "features that the literal reference concatenates, up to 1024 neurons (default: 64), "
    about += "or those of the block's predictor (default: as channels)"
    option("--hidden", type=positive, metavar="K", help=about)
    about = f"head of the network of a step: {', '.join(HEADS)} (default: %(default)s)"
    option("--head", choices=tuple(HEADS), default="fcn", metavar="NAME", help=about)
    about = "precision of block, contexts and step (default: %(default)s)"
    option("--precision", choices=tuple(PRECISIONS), default="32", help=about)
    option("--compiled", action="store_true", help="also block and step by torch.compile")
    about = "timed runs of each, of which the median is shown (default: %(default)s)"
    option("--repeats", type=positive, default=7, metavar="N", help=about)
    about = "leave out of later sizes what took more seconds than this (default: %(default)s)"
    option("--limit", type=float, default=10.0, metavar="SECONDS", help=about)
    devices, about = ("auto", "cpu", "cuda"), "where to measure (default: %(default)s)"
    option("--device", choices=devices, default="cpu", help=about)
    option("--json", action="store_true", help="print JSON and nothing else")
    option("--out", metavar="DIR", help="also write the table as CSV and Markdown, and a plot")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_folder("--out", options.out)
    from scaseg.bench.run import run

    run(
        options.what,
        options.sizes or SIZES.get(options.what, [1024, 3136, 8192]),
        batch=options.batch,
        channels=options.channels,
        hidden=options.hidden,
        head=options.head,
        precision=options.precision,
        compiled=options.compiled,
        repeats=options.repeats,
        limit=options.limit,
        device=options.device,
        as_json=options.json,
        out=None if options.out is None else Path(options.out),
    )


def _sizes(text: str) -> list[int]:
    try:
        return [positive(part.strip()) for part in text.split(",")]
    except UserError as error:
        raise UserError("", repr(text), "give whole numbers >= 1 separated by commas") from error
