"""scaseg compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.parser import Parser, positive
from scaseg.cli.settings import add_settings, read_run


def add_compare(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "compare",
        help="train the same network with several contexts and seeds: the paper's ablation",
        description="Train and evaluate the same network with each context and seed; nothing else "
        "differs. Writes a table (Markdown and CSV) with mean, spread, paired differences, "
        "parameters, time and memory, and a plot. Cut off, it goes on where it was.",
        epilog="example: scaseg compare recipes/own_folder.yaml --data photos --contexts "
        "none,average,sca,sca:pair_channels=4,dot --seeds 3 --out runs/contexts",
    )
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="where runs and tables go")
    parser.add_argument(
        "--contexts",
        default="none,average,sca,dot",
        metavar="NAME,NAME,...",
        help="contexts, the first is what the others are compared with; sca:pair_channels=4 gives "
        "one an option of its own (%(default)s)",
    )
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="runs of each (%(default)s)"
    )
    parser.add_argument(
        "--split", metavar="NAME", help="what to evaluate on (test, else val, else held out)"
    )
    parser.add_argument("--quiet", action="store_true", help="the table alone")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace, parser: Parser) -> None:
    if options.context is not None:
        parser.error("--context: several are compared; use --contexts")
    run = read_run(options, options.recipe, parser)

    from scaseg.training.compare import TABLE, compare, read_variant
    from scaseg.training.loop import WorkError

    try:
        variants = [read_variant(text.strip()) for text in options.contexts.split(",")]
        if len({variant.name for variant in variants}) < len(variants):
            parser.error(f"--contexts: {options.contexts!r}; give each once")
        if run.machine.devices * run.machine.nodes > 1:
            parser.error("--devices: a comparison runs in one process; use 1")
        compare(
            run,
            variants,
            options.seeds,
            options.out,
            split=options.split,
            quiet=options.quiet,
            say=None if options.quiet else lambda line: print(line, file=sys.stderr),
        )
    except WorkError as fault:
        parser.exit(1, f"error: {fault}; what is finished is kept in {options.out}\n")
    except ValueError as fault:
        parser.error(str(fault))
    sys.stdout.write((Path(options.out) / TABLE).read_text(encoding="utf-8"))
