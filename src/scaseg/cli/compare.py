"""scaseg compare."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from scaseg.cli.options import names_of_contexts
from scaseg.cli.parser import Parser, add_option, whole
from scaseg.cli.settings import KEYS, add_settings, read_overrides, read_run
from scaseg.cli.tables import print_markdown
from scaseg.config.keys import COMPARED
from scaseg.errors import UserError, WorkError
from scaseg.io.paths import check_folder


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "compare",
        help="train the same network with several contexts, seeds and folds: the paper's ablation",
        description="Train and evaluate the same network with each context, seed and fold; nothing "
        "else differs. Writes a table (Markdown and CSV) with means, paired differences and their "
        "confidence intervals, parameters, time and memory, and a plot. The same command resumes "
        "an interrupted comparison.",
        epilog="example: scaseg compare own_folder --data photos --contexts none "
        "average sca sca:pair_channels=4 dot --seeds 2 --folds 5 --jobs 2 --out runs/contexts",
    )
    add_settings(parser)
    option = partial(add_option, parser)
    option("--out DIR", "where runs and tables go", required=True)
    about = "contexts, the first is what the others are compared with; sca:pair_channels=4 gives "
    about += "one an option of its own (none average sca dot)"
    option("--contexts NAME", about, nargs="+", default=["none,average,sca,dot"])
    option("--seeds N", "runs of each (3)", type=whole(1, 1000), default=3)
    about = "cross-validation: all listed images in N parts, each tested once (no folds)"
    option("--folds N", about, type=whole(2))
    option("--split NAME", "what to evaluate on (test, else val, else held out)")
    option("--quiet", "the table alone")
    option("--json", "print JSON in place of the table")
    option = partial(add_option, parser.add_argument_group("the queue"))
    about = "trainings in parallel on one device, each in its own process (1), or on the cluster "
    about += "(what fits)"
    option("--jobs N", about)
    about = "start nothing that would not end within, going by finished ones, and stop what runs "
    about += "then; the same command goes on (no limit)"
    option("--time-limit SECONDS", about, type=_seconds)
    about = "of finished runs: the final models, training states too, or rows alone (models)"
    option("--keep", about, choices=("models", "all", "nothing"), default="models")
    about = "several machines, which share the folder of --out, run this command at once, and "
    about += "divide the trainings; those of one that is gone are taken over after a minute"
    option("--shared", about)
    about = "trainings as tasks of a Ray cluster (local)"
    option("--engine", about, choices=("local", "ray"), default="local")
    about = "of a GPU for each training on the cluster, such as 0.25 (1, where there are GPUs)"
    option("--gpus SHARE", about, type=float)
    parser.set_defaults(run=_compare, reads_keys=COMPARED)


def _compare(options: argparse.Namespace) -> None:
    began = time.monotonic()  # the imports below take their seconds too
    check_folder("--out", options.out)
    if options.context is not None:
        raise UserError("--context", "several are compared", "use --contexts")
    contexts = names_of_contexts(options)
    if options.recipe is None and contexts[-1].endswith((".yaml", ".yml")):
        options.recipe = contexts.pop()  # --contexts none sca RECIPE.yaml
    if options.folds is not None:
        options.config_keys = {"data.folds": str(options.folds), **options.config_keys}
    names = [name.partition(":")[0] for name in contexts]
    read_run(options, options.recipe, KEYS, names)  # refused before Lightning is imported

    from scaseg.comparison.compare import compare
    from scaseg.comparison.tables import TABLE
    from scaseg.progress import progress_bar

    def log(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr, flush=True)

    try:
        with progress_bar("training", shown=not options.quiet) as progress:
            found = compare(
                options.recipe,
                contexts,
                out=options.out,
                overrides=read_overrides(options),
                seeds=options.seeds,
                split=options.split,
                jobs=options.jobs,
                time_limit=options.time_limit and options.time_limit - (time.monotonic() - began),
                keep=options.keep,
                shared=options.shared,
                engine=options.engine,
                gpus=options.gpus,
                log=log,
                progress=progress,
            )
    except KeyboardInterrupt:
        sys.stderr.write("finished jobs are kept; the same command goes on\n")
        raise
    except WorkError as error:
        kept = f"finished jobs are kept in {options.out}"
        raise WorkError(str(error), kept) from error
    if options.json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    elif found.summaries:
        print_markdown((Path(options.out) / TABLE).read_text(encoding="utf-8"))
    sys.stdout.flush()
    if found.remaining:
        first, *others = found.remaining
        count = f"{1 + len(others)} jobs ({first}, ...)" if others else f"1 job ({first})"
        again = shlex.join(["scaseg", *sys.argv[1:]])
        why = f": {found.problem}" if found.problem else ""
        sys.stderr.write(f"{count} still to do{why}; go on with: {again}\n")
    if found.failed:
        rest = f" (and {len(found.failed) - 1} more)" if len(found.failed) > 1 else ""
        raise WorkError("", f"{found.failed[0]}{rest}", "the same command tries again")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise UserError("", repr(text), "give seconds, more than 0")
