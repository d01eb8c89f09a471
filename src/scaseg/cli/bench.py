"""scaseg bench."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.options import names_of_contexts
from scaseg.cli.parser import Parser, add_option, listed, positive, whole
from scaseg.errors import UserError
from scaseg.io.model_folder import USUAL
from scaseg.io.paths import check_folder
from scaseg.registry import HEADS
from scaseg.system import PRECISIONS

SIZES = {"contexts": [784, 3136], "step": [448]}
OF_RUN = ("data", "recipe", "model", "workers")
NOT_OF_RUN = ("contexts", "sizes", "channels", "hidden", "head", "compiled", "limit")
USUAL_RECIPE = "own_folder"


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "bench",
        help="time selective context against attention and convolutions, side by side",
        description="Time selective context against its alternatives, side by side in one run: "
        "the operator on tensors, the block or every context on a feature map, a training step of "
        "the paper's network; or a whole training and a whole prediction beside their parts.",
        epilog="example: scaseg bench --what block --sizes 3136,8192 --channels 256 --out timings",
    )
    option = partial(add_option, parser)
    about = "operator: the literal reference, dense, linear, attention, two 1x1 convolutions; "
    about += "block: sca with four activations, average, non-local blocks, sca's own 1x1 "
    about += "convolutions; contexts: all of `scaseg contexts`; step: VGG16 with none, "
    about += "average, sca; run: loaders, step (on one batch; on those of loaders) and network "
    about += "alone, `scaseg train` and `scaseg predict` (default: %(default)s)"
    kinds = ("operator", "block", "contexts", "step", "run")
    option("--what KIND", about, choices=kinds, default="operator")
    about = "with --what contexts: these, named as for `scaseg compare`; others are compared with "
    about += "the first (all, with sca)"
    option("--contexts NAME", about, nargs="+", default=[])
    about = "numbers of neurons, or sides of the images of a step, separated by commas (default: "
    about += "1024,3136,8192; contexts 784,3136; step 448)"
    sizes = listed(positive, "give whole numbers >= 1 separated by commas")
    option("--sizes N,N,...", about, type=sizes)
    option("--batch N", "images in a batch (default: 1; run: the recipe's)", type=positive)
    option("--channels M", "channels of the features (default: 256)", type=positive)
    about = "features that the literal reference concatenates, up to 1024 neurons (default: 64), "
    about += "or those of the block's predictor (default: as channels)"
    option("--hidden K", about, type=positive)
    about = f"head of the network of a step: {', '.join(HEADS)} (default: fcn)"
    option("--head NAME", about, choices=tuple(HEADS))
    about = "precision of block, contexts, step and run (default: 32; run: as the commands have it)"
    option("--precision", about, choices=tuple(PRECISIONS))
    option("--compiled", "also block and step by torch.compile, the block as a CUDA graph")
    about = "timed runs of each, of which the median is shown (default: 7), of a run the best (3)"
    option("--repeats N", about, type=positive)
    about = "leave out of later sizes what took more seconds than this (default: 10)"
    option("--limit SECONDS", about, type=float)
    about = "where to measure (default: %(default)s)"
    option("--device", about, choices=("auto", "cpu", "cuda"), default="cpu")
    of_run = partial(add_option, parser.add_argument_group("with --what run"))
    of_run("--data DIR", "photographs and label maps (default: 160 of noise, made for it)")
    of_run("--recipe NAME", f"whose training is timed, a name or a file (default: {USUAL_RECIPE})")
    of_run("--model MODEL", f"whose prediction is timed (default: {USUAL})")
    of_run("--workers N", "loader processes (default: by the number of cores)", type=whole(0))
    option("--json", "print JSON and nothing else")
    option("--out DIR", "also write the table as CSV and Markdown, and a plot")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_folder("--out", options.out)
    contexts = names_of_contexts(options)
    if contexts and options.what != "contexts":
        raise UserError("--contexts", f"given with --what {options.what}", "use --what contexts")
    for name in OF_RUN:
        if options.what != "run" and getattr(options, name) is not None:
            raise UserError(f"--{name}", f"given with --what {options.what}", "use --what run")
    if options.what == "run":
        for name in NOT_OF_RUN:
            if getattr(options, name):
                raise UserError(f"--{name}", "given with --what run", "leave it out")
        _bench_run(options)
        return
    from scaseg.bench.run import run

    run(
        options.what,
        options.sizes or SIZES.get(options.what, [1024, 3136, 8192]),
        chosen=contexts,
        batch=options.batch or 1,
        channels=options.channels or 256,
        hidden=options.hidden,
        head=options.head or "fcn",
        precision=options.precision or "32",
        compiled=options.compiled,
        repeats=options.repeats or 7,
        limit=10.0 if options.limit is None else options.limit,
        device=options.device,
        as_json=options.json,
        out=None if options.out is None else Path(options.out),
    )


def _bench_run(options: argparse.Namespace) -> None:
    from scaseg.bench.whole import run_whole

    run_whole(
        None if options.data is None else Path(options.data),
        recipe=options.recipe or USUAL_RECIPE,
        model=options.model or USUAL,
        batch=options.batch,
        workers=options.workers,
        precision=options.precision,
        repeats=options.repeats or 3,
        device=options.device,
        as_json=options.json,
        out=None if options.out is None else Path(options.out),
    )
