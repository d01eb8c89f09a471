"""scaseg evaluate."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

from scaseg.cli.options import (
    MACHINE_KEYS,
    add_machine,
    add_max_pixels,
    add_model,
    add_windows,
    find,
    read_tta,
)
from scaseg.cli.parser import Parser, add_option, listed
from scaseg.cli.settings import read_overrides
from scaseg.config.keys import EVALUATED
from scaseg.errors import UserError
from scaseg.io.model_folder import BUILTIN
from scaseg.io.paths import check_folder


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "evaluate",
        help="the paper's three metrics of a model, and its confusion matrix",
        description="Evaluate a model on a split: PPA/aAcc, CAA/mAcc, mIoU and each class, at the "
        "labels' own resolution. Unlabelled pixels never count; a line names the classes that do "
        "not occur.",
        epilog="example: scaseg evaluate --model runs/first --data photos --split test --out "
        "runs/first/test; labels are read as in training (--data.label_map and so on change that); "
        "without --model the built-in one is evaluated, on --data with its classes",
    )
    add_model(parser)
    option = partial(add_option, parser)
    option("--data DIR", "the data (those of the training run)")
    option("--split NAME", "train, val, test or all (test, else val, else held out)")
    option("--json", "print JSON and nothing else")
    option("--out DIR", "also write tables, JSON and pictures there")
    add_max_pixels(parser)
    option("--quiet", "no progress bar")
    group = parser.add_argument_group("test-time augmentation: the mean over scales and flips")
    option = partial(add_option, group)
    scales = listed(float, "give numbers separated by commas, such as 0.75,1,1.25")
    option("--scales X,X,...", "such as 0.75,1,1.25 (1)", type=scales)
    option("--flip", "flipped too")
    option("--tta", "the same as --scales 0.75,1,1.25 --flip")
    add_windows(group)
    add_machine(parser)
    parser.set_defaults(run=_evaluate, reads_keys=EVALUATED)


def _evaluate(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_folder("--out", options.out)
    folder = find("--model", options.model)  # before Lightning is imported
    if folder.parent == BUILTIN and options.data is None and "data.root" not in options.config_keys:
        raise UserError("--data", "nothing", "give data with the classes of the built-in model")
    test_time = read_tta(options)
    keys = {"data": "data.root", "max_pixels": "data.max_pixels", **MACHINE_KEYS}
    overrides = read_overrides(options, keys)

    from scaseg.training.distributed import is_rank_zero
    from scaseg.training.evaluation import evaluate

    result = evaluate(
        options.model,
        split=options.split,
        tta=test_time,
        overrides=overrides,
        out=options.out,
        quiet=options.quiet or options.json,
    )
    if is_rank_zero():
        print(json.dumps(result.to_dict(), ensure_ascii=False) if options.json else result.table())
