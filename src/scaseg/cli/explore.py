"""scaseg explore."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaseg.cli.options import add_device, add_max_pixels, add_with_context
from scaseg.cli.parser import Parser, add_option
from scaseg.cli.serve import (
    HOST,
    PORT,
    add_models,
    add_server,
    load_models,
    prepare_server,
    token_of,
)
from scaseg.errors import UserError, plural
from scaseg.io.ownership import check_result
from scaseg.progress import progress_bar

if TYPE_CHECKING:
    from scaseg.models.segmenter import Segmenter


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "explore",
        help="a page on which the pointer shows what every neuron depends on",
        description="Open a page in the browser, served by this machine for this machine alone. "
        "Drop a photograph on it, move the pointer over it, and the dependency map of the neuron "
        "under it follows; pin points, take their sources away, compare models side by side. "
        "--export writes the page as one HTML file instead, which needs no server.",
        epilog="example: scaseg explore photo.jpg --model runs/none runs/sca; for a talk: scaseg "
        "explore photo.jpg --export page.html",
    )
    parser.add_argument(
        "images", nargs="*", metavar="IMAGES", help="images, or folders of them (two examples)"
    )
    add_models(parser)
    add_with_context(parser)
    add_max_pixels(parser)
    add_device(parser)
    add_option(parser, "--quiet", "print the address alone, no progress")
    group = parser.add_argument_group("the server")
    add_server(group)
    add_option(group, "--no-browser", "print the address, open nothing")
    option = partial(add_option, parser.add_argument_group("a page without a server"))
    option("--export FILE", "the page to write", type=Path)
    option("--overwrite", "replace a page that is there")
    parser.set_defaults(run=_explore)


def _explore(options: argparse.Namespace) -> None:
    of_server = ("port", "host", "token", "no_browser")
    given = [name for name in of_server if getattr(options, name) not in (None, False)]
    given += ["port"] if options.port == 0 else []  # which equals False
    if options.export is not None and given:
        option = f"--{given[0].replace('_', '-')}"
        raise UserError(option, "came with --export, which needs no server", "leave it out")
    if options.export is None and options.overwrite:
        raise UserError("--overwrite", "came without --export", "leave it out")
    if options.export is not None:
        check_result("--export", options.export, overwrite=options.overwrite)
    if options.export is not None and not options.images:
        raise UserError("IMAGES", "none", "give the pictures of the page")
    models = load_models(options)
    from scaseg.data.decode.bands import BAND_SUFFIXES
    from scaseg.data.decode.image import IMAGE_SUFFIXES
    from scaseg.inference.inputs import Inputs

    has_bands = any(model.config.bands is not None for model in models.values())
    suffixes = BAND_SUFFIXES if has_bands else IMAGE_SUFFIXES
    inputs = Inputs(options.images, options.export or Path(), None, suffixes)
    images = [Path(file.path) for file in inputs]
    if options.export is None:
        _serve(options, models, images, examples=not has_bands)
    else:
        _export(options, models, images)


def _serve(
    options: argparse.Namespace,
    models: Mapping[str, Segmenter],
    images: list[Path],
    *,
    examples: bool,
) -> None:
    prepare_server()
    try:
        from scaseg.explorer.serve import example_pictures, explore
    except ImportError as error:
        remedy = "pip install 'scaseg[explorer]', or write a page with --export"
        raise UserError("explore", f"{error.name} is not installed", remedy) from error

    def announce(address: str) -> None:
        text = address if options.quiet else f"open {address} (Ctrl-C ends it)"
        print(text, flush=True)  # scripts read it through a pipe

    explore(
        models,
        images or (example_pictures() if examples else []),
        host=options.host or HOST,
        port=PORT if options.port is None else options.port,
        token=token_of(options),
        max_pixels=options.max_pixels,
        browser=not options.no_browser,
        announce=announce,
    )


def _export(
    options: argparse.Namespace, models: Mapping[str, Segmenter], images: list[Path]
) -> None:
    from scaseg.explorer.page import export_page
    from scaseg.explorer.payload import picture_payloads, read_picture
    from scaseg.io.atomic import write_text

    page: Path = options.export
    payloads: list[dict[str, Any]] = []
    with progress_bar("segmenting", shown=not options.quiet) as progress:
        for path in images:
            pixels = read_picture(path, models, options.max_pixels)
            payloads += [one for one, _ in picture_payloads([(path.name, pixels)], models)]
            progress(len(payloads), len(images))
    write_text(page, export_page(payloads))
    if not options.quiet:
        count = plural(len(images), "picture")
        size = page.stat().st_size / 2**20
        print(f"{page}: {count}, {size:.1f} MiB; open it in a browser")
