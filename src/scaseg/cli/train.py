"""scaseg train."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scaseg.cli.machine import MACHINE_KEYS
from scaseg.cli.parser import Parser
from scaseg.cli.places import check_folder
from scaseg.cli.settings import KEYS, add_settings, given_settings, read_run

# what may change when a run is continued, perhaps on another machine
# (not how many devices: the schedule counts their steps)
MOVABLE = {"data", "on_nan", *MACHINE_KEYS} - {"devices"}


def add_train(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "train",
        help="train a network on photographs and label maps",
        description="Train a network. A recipe holds all settings; options override it. Without a "
        "recipe the settings are the paper's. The run folder gets the recipe, metrics.csv, "
        "checkpoints, and the final model in RUN/model.",
        epilog="example: scaseg train own_folder --data photos --out runs/first "
        "--epochs 20; any key of a recipe is an option: --training.ema 0.999, --augment.crop "
        "'[256, 256]'; --keys lists them",
    )
    add_settings(parser)
    parser.add_argument("--out", metavar="RUN", help="the run folder, new or empty")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument(
        "--overwrite", action="store_true", help="start over in the folder of a run"
    )
    parser.add_argument(
        "--fast-dev-run", action="store_true", help="one batch of each kind, nothing written"
    )
    parser.add_argument("--keys", action="store_true", help="list all keys of a recipe, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace, parser: Parser) -> None:
    from scaseg.config.recipe import describe

    if options.keys:
        for key, value, fits, about in describe():
            sys.stdout.write(f"{key}: {_shown(value)}\n    {about}\n    {fits}\n")
        return
    if options.out is None and not options.fast_dev_run:
        parser.error("--out: nothing; say where the run goes")
    if options.out is not None:
        try:
            check_folder("--out", options.out)
        except ValueError as fault:
            parser.error(str(fault))
    recipe = options.recipe
    if options.resume:
        given = {*given_settings(options), *options.config_keys}
        recipe = _recipe_to_resume(options, given, parser)
    run = read_run(options, recipe)
    _run(options, run, parser)


def _run(options: argparse.Namespace, run: object, parser: Parser) -> None:
    from scaseg.config.run import RunConfig
    from scaseg.training.checkpoint_io import has_state
    from scaseg.training.distributed import AgreedError
    from scaseg.training.run import train
    from scaseg.training.run_folder import LAST
    from scaseg.training.signals import TerminatedError
    from scaseg.training.trainer import WorkError, is_first_process

    assert isinstance(run, RunConfig)
    folder = None if options.out is None else Path(options.out)
    try:
        result = train(
            run,
            folder,
            resume=options.resume,
            overwrite=options.overwrite,
            fast_dev_run=options.fast_dev_run,
            quiet=options.quiet,
            say=None if options.quiet else lambda line: print(line, file=sys.stderr),
        )
    except WorkError as fault:
        if isinstance(fault.__cause__, AgreedError) and not is_first_process():
            parser.exit(1)
        kept = ""
        if folder is not None and folder.is_dir():
            with suppress(OSError):  # a full disk must not hide what went wrong
                (folder / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
                kept = f"; details in {folder / 'traceback.txt'}"
        parser.fail(1, f"{fault}{kept}")
    except ValueError as fault:
        parser.error(str(fault))
    except (KeyboardInterrupt, TerminatedError):
        if is_first_process() and folder is not None and has_state(folder / LAST):
            sys.stderr.write(f"saved; continue with: scaseg train --resume --out {folder}\n")
        raise
    if is_first_process() and not options.quiet:
        from scaseg.training.summary import summary

        sys.stdout.write(summary(result, run))


def _recipe_to_resume(options: argparse.Namespace, given: set[str], parser: Parser) -> Path:
    """Find what a run was, and refuse to change it half-way."""
    if options.recipe is not None or options.overwrite or options.fast_dev_run:
        parser.error("--resume: comes with --out alone; the rest is in the run folder")
    other = sorted(given - MOVABLE - {KEYS[name] for name in MOVABLE})
    if other:
        parser.error(
            f"--resume: --{other[0].replace('_', '-')} cannot change in a run; leave it out"
        )
    from scaseg.io.model_folder import RECIPE

    folder = Path(options.out)
    if not (folder / RECIPE).is_file():
        parser.error(f"--resume: {folder} has no run ({RECIPE}); start it without --resume")
    return folder / RECIPE


def _shown(value: object) -> str:
    return "null" if value is None else str(list(value) if isinstance(value, tuple) else value)
