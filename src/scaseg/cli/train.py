"""scaseg train."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from scaseg.cli.parser import Parser, add_option
from scaseg.cli.settings import KEYS, add_settings, read_overrides, read_run, typed_options
from scaseg.errors import UserError
from scaseg.io.paths import check_folder


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "train",
        help="train a network on photographs and label maps",
        description="Train a network. A recipe holds all settings; options override it. Without a "
        "recipe the settings are those of own_folder. The run folder gets the recipe, metrics.csv, "
        "checkpoints, and the final model in RUN/model.",
        epilog="example: scaseg train own_folder --data photos --out runs/first "
        "--epochs 20; any key of a recipe is an option: --training.ema 0.999, --augment.crop "
        "'[256, 256]'; --keys lists them",
    )
    add_settings(parser)
    option = partial(add_option, parser)
    option("--out RUN", "the run folder, new or empty")
    about = "train a model further: a run folder, one by save_pretrained, or outdoor; the network "
    about += "is its own, classes that share a name are kept"
    option("--start-from MODEL", about)
    option("--resume", "continue the run in --out; with --epochs N, to another number of epochs")
    about = "--resume if anything was saved in --out, else start: for torchrun and SLURM, which "
    about += "start the same command again"
    option("--auto-resume", about)
    option("--overwrite", "start over in the folder of a run")
    option("--fast-dev-run", "one batch of each kind, nothing written")
    option("--keys", "list all keys of a recipe, and stop")
    option("--quiet", "no progress, no table")
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> None:
    if options.keys:
        from scaseg.config.recipe import describe

        for key, value, fits, about in describe():
            print(f"{key}: {_yaml(value)}\n    {about}\n    {fits}")
        return
    if options.out is None and not options.fast_dev_run:
        raise UserError("--out", "nothing", "give the folder of the run")
    if options.out is not None:
        check_folder("--out", options.out)
    keys = KEYS | {"start_from": "model.start_from"}
    if not options.resume:  # that has a recipe of its own; others are read before Lightning is
        read_run(options, options.recipe, keys)

    from scaseg.training.distributed import is_rank_zero
    from scaseg.training.run import train

    with typed_options(options, keys):
        result = train(
            options.recipe,
            options.out,
            overrides=read_overrides(options, keys),
            resume=options.resume,
            auto_resume=options.auto_resume,
            overwrite=options.overwrite,
            fast_dev_run=options.fast_dev_run,
            quiet=options.quiet,
        )
    if is_rank_zero() and not options.quiet:
        print(result.summary())


def _yaml(value: object) -> str:
    return "null" if value is None else str(list(value) if isinstance(value, tuple) else value)
