"""scaseg compare."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.parser import Parser, positive, whole
from scaseg.cli.places import check_folder
from scaseg.cli.settings import add_settings, read_run


def add_compare(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "compare",
        help="train the same network with several contexts, seeds and folds: the paper's ablation",
        description="Train and evaluate the same network with each context, seed and fold; nothing "
        "else differs. Writes a table (Markdown and CSV) with means, paired differences and their "
        "confidence intervals, parameters, time and memory, and a plot. Cut off, it goes on where "
        "it was.",
        epilog="example: scaseg compare own_folder --data photos --contexts none "
        "average sca sca:pair_channels=4 dot --seeds 2 --folds 5 --jobs 2 --out runs/contexts",
    )
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="where runs and tables go")
    parser.add_argument(
        "--contexts",
        nargs="+",
        default=["none,average,sca,dot"],
        metavar="NAME",
        help="contexts, the first is what the others are compared with; sca:pair_channels=4 gives "
        "one an option of its own (none average sca dot)",
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=3, metavar="N", help="runs of each (%(default)s)"
    )
    parser.add_argument(
        "--folds",
        type=_folds,
        metavar="N",
        help="cross-validation: all listed images in N parts, each tested once (no folds)",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="what to evaluate on (test, else val, else held out)"
    )
    group = parser.add_argument_group("the queue")
    group.add_argument(
        "--jobs",
        type=positive,
        default=1,
        metavar="N",
        help="trainings side by side on one device, each in its own process (%(default)s)",
    )
    group.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="SECONDS",
        help="start nothing that would not end within, and stop what runs then; the same command "
        "goes on (no limit)",
    )
    group.add_argument(
        "--keep",
        choices=("models", "all", "nothing"),
        default="models",
        help="of finished runs: the final models, training states too, or rows alone (%(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="the table alone")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace, parser: Parser) -> None:
    began = time.monotonic()  # the imports below take their seconds too
    try:
        check_folder("--out", options.out)
    except ValueError as fault:
        parser.error(str(fault))
    if options.context is not None:
        parser.error("--context: several are compared; use --contexts")
    contexts = [name.strip() for text in options.contexts for name in text.split(",")]
    if options.recipe is None and contexts[-1].endswith((".yaml", ".yml")):
        options.recipe = contexts.pop()  # --contexts none sca RECIPE.yaml
    if options.folds is not None:
        options.config_keys = {"data.folds": str(options.folds), **options.config_keys}
    run = read_run(options, options.recipe)

    from scaseg.comparison.compare import TABLE, compare, read_variant
    from scaseg.training.trainer import WorkError

    try:
        variants = [read_variant(text) for text in contexts]
        if len({variant.name for variant in variants}) < len(variants):
            parser.error(f"--contexts: {' '.join(contexts)}; give each once")
        if run.machine.devices * run.machine.nodes > 1:
            parser.error("--devices: a comparison runs on one device; use 1, and --jobs for more")
        found = compare(
            run,
            variants,
            options.seeds,
            options.out,
            split=options.split,
            jobs=options.jobs,
            time_limit=options.time_limit and options.time_limit - (time.monotonic() - began),
            keep=options.keep,
            say=None if options.quiet else lambda line: print(line, file=sys.stderr, flush=True),
        )
    except KeyboardInterrupt:
        sys.stderr.write("what is finished is kept; the same command goes on\n")
        raise
    except WorkError as fault:
        parser.fail(1, f"{fault}; what is finished is kept in {options.out}")
    except ValueError as fault:
        parser.error(str(fault))
    if options.json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    elif found.summaries:
        sys.stdout.write((Path(options.out) / TABLE).read_text(encoding="utf-8"))
    sys.stdout.flush()
    if found.remaining:
        again = shlex.join(["scaseg", *sys.argv[1:]])
        sys.stderr.write(f"{_count(found.remaining)} still to do; go on with: {again}\n")
    if found.failed:
        rest = f" (and {len(found.failed) - 1} more)" if len(found.failed) > 1 else ""
        parser.fail(1, f"{found.failed[0]}{rest}; the same command tries again")


def _count(jobs: list[str]) -> str:
    return f"1 job ({jobs[0]})" if len(jobs) == 1 else f"{len(jobs)} jobs ({jobs[0]}, ...)"


def _seeds(text: str) -> int:
    return whole(text, 1, 1000)


def _folds(text: str) -> int:
    return whole(text, 2)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; give seconds, more than 0")
    return seconds
