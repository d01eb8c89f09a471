"""Options that several commands share, described and read in one way."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.parser import Parser, add_option
from scaseg.errors import UserError, as_options, located
from scaseg.io.model_folder import USUAL, find_model
from scaseg.registry import CONTEXTS
from scaseg.system import DEVICES, PRECISIONS, choose_device

if TYPE_CHECKING:
    from scaseg.inference.crf import DenseCrf
    from scaseg.inference.tta import TestTimeAugmentation
    from scaseg.models.segmenter import Segmenter

# options that stand for a key of the recipe
MACHINE_KEYS = {
    "device": "machine.device",
    "devices": "machine.devices",
    "precision": "machine.precision",
    "workers": "machine.workers",
}


def add_machine(parser: Parser) -> None:
    """--device, --devices, --precision, --workers; the defaults are the recipe's."""
    option = partial(add_option, parser.add_argument_group("machine"))
    option("--device", "what to compute on (auto)", choices=DEVICES)
    option("--devices N", "processes, one on each device (1)")
    option("--precision", "of activations", choices=(*PRECISIONS, "auto"))
    option("--workers N", "loader processes (by the number of cores)", type=str)


def add_device(to: argparse._ActionsContainer) -> None:
    """--device, of commands that read no recipe."""
    add_option(to, "--device", "(%(default)s)", choices=DEVICES, default="auto")


def add_max_pixels(to: argparse._ActionsContainer) -> None:
    """--max-pixels; the default is scaseg.data.decode.files.MAX_PIXELS."""
    about = "larger images are refused before they are decoded (250 million)"
    add_option(to, "--max-pixels N", about)


def add_with_context(to: argparse._ActionsContainer) -> None:
    """--with-context, which `let_in_contexts` obeys."""
    about = "let in a context of your own, which a model or a run folder names; this imports it"
    add_option(to, "--with-context MODULE:CLASS", about, action="append", default=[])


def names_of_contexts(options: argparse.Namespace) -> list[str]:
    """What --contexts gives, apart by spaces or commas: sca,psp:bins=[1,2] are two."""
    apart = r",(?![^\[]*\])"
    typed = getattr(options, "contexts", ())
    return [name.strip() for text in typed for name in re.split(apart, text)]


def let_in_contexts(options: argparse.Namespace) -> None:
    """Import the contexts of the user's own that were typed, and no others."""
    typed = [("--with-context", path) for path in getattr(options, "with_context", ())]
    named = [("--context", getattr(options, "context", None))]
    named += [("--model.context", options.config_keys.get("model.context"))]
    for name in names_of_contexts(options):  # my.module:Class:option=value
        named.append(("--contexts", ":".join(name.split(":")[:2])))
    for option, path in named:
        if path is None or not re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", path):
            continue
        if path.partition(":")[0] not in CONTEXTS:
            typed.append((option, path))
    for option, path in typed:
        from scaseg.nn.own import add_context

        with located(option):
            add_context(path)


def add_model(to: argparse._ActionsContainer) -> None:
    """--model, for commands that need no model of the user's own."""
    about = "a run folder, one by save_pretrained, hf:USER/MODEL of the Hugging Face hub, or "
    add_option(to, "--model MODEL", f"{about}{USUAL}: built in, and the default")
    add_with_context(to)


def add_windows(group: argparse._ArgumentGroup) -> None:
    """--window, --overlap, --context-scope, --crf."""
    option = partial(add_option, group)
    about = "in sliding windows of N x N pixels: any size in bounded memory; 512 is usual"
    option("--window N", about)
    about = "pixels shared by windows (64, or half a window); more where windows show"
    option("--overlap N", about, type=int)
    about = "with --window: context from each window alone, or, in a second pass, from all of "
    about += "the image (%(default)s)"
    option("--context-scope", about, choices=("window", "image"), default="window")
    option("--crf", "refine labels by a dense CRF over the pixels' places and colors, at full size")
    about = "--crf with some of steps=5, near=3, near_weight=1, far=80, color=13, weight=3"
    option("--crf-settings NAME=X,...", about)


def read_crf(options: argparse.Namespace) -> DenseCrf | None:
    """Read --crf and --crf-settings."""
    if not options.crf and options.crf_settings is None:
        return None
    from scaseg.inference.crf import DenseCrf, read_crf

    if options.crf_settings is None:
        return DenseCrf()
    with located("--crf-settings"):
        return read_crf(options.crf_settings)


def read_tta(options: argparse.Namespace) -> TestTimeAugmentation:
    """Read --tta, --scales, --flip and the options of windows."""
    from scaseg.inference.tta import SCALES, TestTimeAugmentation

    if options.tta and options.scales is not None:
        raise UserError("--scales", "--tta has its own", "give one of the two")
    scales = SCALES if options.tta else tuple(options.scales or (1.0,))
    windows = (options.window, options.overlap, options.context_scope)
    with as_options():
        return TestTimeAugmentation(
            scales, options.flip or options.tta, *windows, crf=read_crf(options)
        )


def find(option: str, folder: str | None) -> Path:
    """Find a model's folder, without torch; errors name the option that it was given by."""
    with located(option):
        return find_model(folder)


def load(option: str, folder: Path, device: str) -> Segmenter:
    """Load the model of a folder by `find` onto a device; errors name the option."""
    from scaseg.models.build import read_model

    device = choose_device(device)
    with located(option):
        return read_model(folder).to(device)


def print_notes(notes: Iterable[str], *, quiet: bool) -> None:
    """Print lines for people, on stderr."""
    if not quiet:
        for note in notes:
            print(note, file=sys.stderr)
