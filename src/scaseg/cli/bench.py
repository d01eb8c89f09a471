"""scaseg bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.options import names_of_contexts
from scaseg.cli.parser import Parser, add_option, listed, positive
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
    option = partial(add_option, parser)
    about = "operator: the literal reference, dense, linear, attention, two 1x1 convolutions; "
    about += "block: sca with four activations, average, non-local blocks, sca's own 1x1 "
    about += "convolutions; contexts: all of `scaseg contexts`; step: VGG16 with none, "
    about += "average, sca (default: %(default)s)"
    kinds = ("operator", "block", "contexts", "step")
    option("--what KIND", about, choices=kinds, default="operator")
    about = "with --what contexts: these, named as for `scaseg compare`; others are compared with "
    about += "the first (all, with sca)"
    option("--contexts NAME", about, nargs="+", default=[])
    about = "numbers of neurons, or sides of the images of a step, separated by commas (default: "
    about += "1024,3136,8192; contexts 784,3136; step 448)"
    sizes = listed(positive, "give whole numbers >= 1 separated by commas")
    option("--sizes N,N,...", about, type=sizes)
    option("--batch N", "images in a batch (default: %(default)s)", default=1)
    about = "channels of the features (default: %(default)s)"
    option("--channels M", about, type=positive, default=256)
    about = "features that the literal reference concatenates, up to 1024 neurons (default: 64), "
    about += "or those of the block's predictor (default: as channels)"
    option("--hidden K", about, type=positive)
    about = f"head of the network of a step: {', '.join(HEADS)} (default: %(default)s)"
    option("--head NAME", about, choices=tuple(HEADS), default="fcn")
    about = "precision of block, contexts and step (default: %(default)s)"
    option("--precision", about, choices=tuple(PRECISIONS), default="32")
    option("--compiled", "also block and step by torch.compile, the block as a CUDA graph")
    about = "timed runs of each, of which the median is shown (default: %(default)s)"
    option("--repeats N", about, default=7)
    about = "leave out of later sizes what took more seconds than this (default: %(default)s)"
    option("--limit SECONDS", about, type=float, default=10.0)
    about = "where to measure (default: %(default)s)"
    option("--device", about, choices=("auto", "cpu", "cuda"), default="cpu")
    option("--json", "print JSON and nothing else")
    option("--out DIR", "also write the table as CSV and Markdown, and a plot")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_folder("--out", options.out)
    contexts = names_of_contexts(options)
    if contexts and options.what != "contexts":
        raise UserError("--contexts", f"given with --what {options.what}", "use --what contexts")
    from scaseg.bench.run import run

    run(
        options.what,
        options.sizes or SIZES.get(options.what, [1024, 3136, 8192]),
        chosen=contexts,
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
