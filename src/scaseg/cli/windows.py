"""Windows on the command line: the options of `predict` and `evaluate`, read the same way."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from scaseg.cli.parser import positive

if TYPE_CHECKING:
    from scaseg.inference.test_time import TestTimeAugmentation
    from scaseg.models.segmenter import Segmenter


def add_windows(group: argparse._ArgumentGroup) -> None:
    """Describe the options."""
    group.add_argument(
        "--window",
        type=positive,
        metavar="N",
        help="in windows of N x N pixels: any size in bounded memory; 512 is usual",
    )
    group.add_argument(
        "--overlap",
        type=int,
        metavar="N",
        help="pixels shared by windows (64, or half a window); more where windows show",
    )
    group.add_argument(
        "--context-scope",
        choices=("window", "image"),
        default="window",
        help="with --window: context from each window alone, or, in a second pass, from all of "
        "the photograph (%(default)s)",
    )


def read_looks(
    options: argparse.Namespace, scales: tuple[float, ...], *, flip: bool
) -> TestTimeAugmentation:
    """Put the looks at a photograph together; ValueError where something does not fit."""
    from scaseg.inference.test_time import TestTimeAugmentation

    if options.window is None:
        for name, given in (("overlap", options.overlap), ("context-scope", options.context_scope)):
            if given not in (None, "window"):
                raise ValueError(f"--{name}: {given}, but there are no windows; add --window 512")
    overlap = options.overlap
    if overlap is None:
        overlap = min(64, (options.window or 128) // 2)
    return TestTimeAugmentation(scales, flip, options.window, overlap, options.context_scope)


def check_windows(how: TestTimeAugmentation, model: Segmenter, *, quiet: bool) -> None:
    """Refuse a context that cannot be gathered, and say where there will be no windows."""
    from scaseg.nn.streaming import StreamedContext

    if how.window is None:
        return
    if how.context_scope == "image":
        StreamedContext(model.context)
    fit = model.config.fit
    if fit is not None and max(fit) * max(how.scales) <= how.window and not quiet:
        print(
            f"note: this model sees photographs fitted into {fit[0]} x {fit[1]}, as in its "
            f"training: one window of {how.window} covers them",
            file=sys.stderr,
        )
