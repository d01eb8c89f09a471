"""scaseg explore."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.options import add_max_pixels, find, load
from scaseg.cli.parser import Parser
from scaseg.errors import UserError
from scaseg.io.model_folder import USUAL
from scaseg.io.paths import check_file
from scaseg.progress import progress_bar
from scaseg.system import DEVICES


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "explore",
        help="a page on which the pointer shows what every neuron depends on",
        description="Write one HTML file that opens in any browser, without a server or a network. "
        "Move the pointer over a picture, and the dependency map of the neuron under it follows; "
        "pin points, compare models side by side, keep maps and views.",
        epilog="example: scaseg explore photo.jpg --export page.html; with two models: scaseg "
        "explore photo.jpg --model runs/none runs/sca --export page.html",
    )
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="images, or folders of them")
    parser.add_argument(
        "--model",
        nargs="+",
        default=[None],
        metavar="MODEL",
        help=f"run folders, others by save_pretrained, or {USUAL}: built in, and the default",
    )
    parser.add_argument(
        "--export", type=Path, required=True, metavar="FILE", help="the page to write"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a page that is there")
    add_max_pixels(parser)
    parser.add_argument("--device", choices=DEVICES, default="auto", help="(%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="print nothing, no progress")
    parser.set_defaults(run=_explore)


def _explore(options: argparse.Namespace) -> None:
    from scaseg.explorer.page import export_page, is_page
    from scaseg.inference.inputs import Inputs

    page: Path = options.export
    check_file("--export", page, overwrite=options.overwrite)
    if page.exists() and not is_page(page):
        raise UserError("--export", f"{page} is no page by `scaseg explore`", "give another name")
    folders = [find("--model", name) for name in options.model]
    inputs = list(Inputs(options.images, page, None))

    from scaseg.data.decode.image import read_image
    from scaseg.explorer.payload import picture_payload
    from scaseg.io.atomic import write_text

    names = _distinct([name or USUAL for name in options.model])
    models = {
        name: load("--model", folder, options.device)
        for name, folder in zip(names, folders, strict=True)
    }
    payloads = []
    with progress_bar("segmenting", shown=not options.quiet) as progress:
        for file in inputs:
            pixels = read_image(file.path, max_pixels=options.max_pixels)
            payloads.append(picture_payload(file.path.name, pixels, models))
            progress(len(payloads), len(inputs))
    write_text(page, export_page(payloads))
    if not options.quiet:
        count = f"{len(inputs)} picture{'' if len(inputs) == 1 else 's'}"
        size = page.stat().st_size / 2**20
        print(f"{page}: {count}, {size:.1f} MiB; open it in a browser")


def _distinct(names: list[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    for parts in range(1, 9):
        short = [str(Path(*Path(name).parts[-parts:])) for name in names]
        if len(set(short)) == len(names):
            return short
    raise UserError("--model", f"{names[0]} comes twice", "give each once")
