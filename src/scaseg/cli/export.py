"""scaseg export."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.options import add_model, find, load, print_notes
from scaseg.cli.parser import Parser, add_option
from scaseg.errors import UserError, located
from scaseg.io.model_folder import model_notes
from scaseg.io.ownership import check_result
from scaseg.system import in_words

FORMATS = ("onnx", "torch-export")


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "export",
        help="a model as one file for ONNX Runtime, a browser, torch.export",
        description="Write a model as one file that runs without scaseg: images (batch, C, height, "
        "width), float32 and normalized, in; scores of the classes out; any batch and size. The "
        "file is compared with the model on five sizes before it is written. Class names, palette, "
        "normalization and the size at which the model sees are in its metadata. ONNX needs pip "
        "install 'scaseg[export]'.",
        epilog="example: scaseg export --model runs/first --out first.onnx; with --labels the file "
        "takes photographs as they are and gives label maps, as scaseg predict does",
    )
    add_model(parser)
    option = partial(add_option, parser)
    option("--out FILE", "what to write", required=True, type=Path)
    about = "what torch.onnx writes, or torch.export.save (%(default)s)"
    option("--format", about, choices=FORMATS, default="onnx")
    about = (
        "fold resizing, normalization and argmax in: images (batch, height, width, C) uint8 in, "
    )
    about += "labels (batch, height, width) out"
    option("--labels", about)
    option("--overwrite", "replace a file that is there")
    option("--quiet", "no summary")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    if options.labels and options.format != "onnx":
        raise UserError("--labels", f"not with {options.format}", "it goes with --format onnx")
    check_result("--out", options.out, overwrite=options.overwrite)
    folder = find("--model", options.model)  # before torch is imported

    from scaseg.export.check import TOLERANCE
    from scaseg.export.export import check_suffix, export_model

    check_suffix("--format", options.out, options.format)
    waiting = "tracing the network and comparing the two: about half a minute"
    print_notes([*model_notes(options.model, folder), waiting], quiet=options.quiet)
    model = load("--model", folder, "cpu")
    with located("--model"):
        done = export_model(
            model, options.out, format=options.format, labels=options.labels, overwrite=True
        )
    notes = [done.graph, "difference from the model, by batch x height x width:"]
    notes += [f"  {one}" for one in done.comparisons]
    notes.append(f"at most {done.difference:.1e}; {TOLERANCE:g} is allowed")
    notes.append(f"wrote {options.out} ({in_words(options.out.stat().st_size)})")
    print_notes(notes, quiet=options.quiet)
