"""scaseg evaluate."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from scaseg.cli.limits import add_max_pixels
from scaseg.cli.loading import add_model, find, say_builtin
from scaseg.cli.machine import MACHINE_KEYS, add_machine
from scaseg.cli.parser import Parser
from scaseg.cli.places import check_folder
from scaseg.cli.windows import add_windows, check_windows, read_looks
from scaseg.io.model_folder import is_builtin


def add_evaluate(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "evaluate",
        help="the paper's three metrics of a model, and its confusion matrix",
        description="Judge a model on a split: PPA/aAcc, CAA/mAcc, mIoU and each class, at the "
        "labels' own resolution. Unlabelled pixels never count; classes that do not occur are n/a.",
        epilog="example: scaseg evaluate --model runs/first --data photos --split test --out "
        "runs/first/test; labels are read as in training (--data.label_map and so on change that); "
        "without --model the built-in one is judged, on --data with its classes",
    )
    add_model(parser)
    parser.add_argument("--data", metavar="DIR", help="the data (those of the training run)")
    parser.add_argument(
        "--split", metavar="NAME", help="train, val, test or all (test, else val, else held out)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--out", metavar="DIR", help="also write pictures and confusion.csv there")
    add_max_pixels(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    group = parser.add_argument_group("more looks at each photograph, averaged")
    group.add_argument(
        "--scales", type=_scales, default=(1.0,), metavar="X,X,...", help="such as 0.75,1,1.25"
    )
    group.add_argument("--flip", action="store_true", help="mirrored too")
    group.add_argument("--tta", action="store_true", help="the same as --scales 0.75,1,1.25 --flip")
    add_windows(group)
    add_machine(parser)
    parser.set_defaults(run=_evaluate, takes_keys=True)


def _evaluate(options: argparse.Namespace, parser: Parser) -> None:
    try:
        if options.out is not None:
            check_folder("--out", options.out)
        folder = find("--model", options.model)  # before Lightning: it is quick to refuse
        if is_builtin(folder) and options.data is None and "data.root" not in options.config_keys:
            raise ValueError("--data: nothing; the built-in model has none, say where yours are")
    except ValueError as fault:
        parser.error(str(fault))

    from scaseg.config.recipe import load_recipe
    from scaseg.io.lock import folder_lock
    from scaseg.models.build import load_model
    from scaseg.progress import progress_bar
    from scaseg.training.data import evaluation_split
    from scaseg.training.evaluation import (
        check_images,
        data_of,
        evaluate,
        trained_on,
        unnamed_classes,
    )
    from scaseg.training.trainer import WorkError, check_device, is_first_process

    scales = (0.75, 1.0, 1.25) if options.tta else options.scales
    overrides = {MACHINE_KEYS[name]: getattr(options, name) for name in MACHINE_KEYS}
    overrides["data.max_pixels"] = options.max_pixels
    overrides = {key: str(value) for key, value in overrides.items() if value is not None}
    try:
        test_time = read_looks(options, scales, flip=options.flip or options.tta)
        model = load_model(folder)
        quiet = options.json or options.quiet or not is_first_process()
        check_windows(test_time, model, quiet=quiet)
        data = data_of(model, options.data)
        run = load_recipe(None, overrides | options.config_keys, data=data)
        if run.data.root is None and not run.data.is_generated:
            parser.error("--data: nothing; say where the photographs and labels are")
        check_device(run.machine)
        dataset, said = evaluation_split(run.data, options.split, trained_on=trained_on(model))
        classes = model.config.classes
        # an --out that cannot be is refused now, not after the work
        writes = options.out is not None and is_first_process()
        with folder_lock(options.out) if writes else nullcontext():
            say_builtin(options.model, quiet=quiet)
            if not quiet:
                print(f"{len(dataset)} photographs: {said}", file=sys.stderr)
                if (note := unnamed_classes(model, dataset)) is not None:
                    print(f"note: {note}", file=sys.stderr)
            with progress_bar("checking the data", len(dataset), shown=not quiet) as progress:
                check_images(model, dataset, run.data.check, progress=progress)
            with progress_bar("evaluating", len(dataset), shown=not quiet) as progress:
                result = evaluate(
                    model,
                    dataset,
                    test_time=test_time,
                    machine=run.machine,
                    progress=progress,
                    check="none",
                )
            if writes:
                from scaseg.plots.figures import write_evaluation

                write_evaluation(result.confusion, classes, Path(options.out))
    except WorkError as fault:
        parser.fail(1, str(fault))
    except ValueError as fault:
        parser.error(str(fault))
    if not is_first_process():
        return
    if options.json:
        print(json.dumps(result.to_dict(classes), ensure_ascii=False))
    else:
        print(result.scores.table(classes))


def _scales(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}; give numbers separated by commas, such as 0.75,1,1.25"
        ) from None
