"""scaseg serve, and what it shares with scaseg explore."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.options import add_device, add_with_context, find, load
from scaseg.cli.parser import Parser, add_option, whole
from scaseg.errors import UserError
from scaseg.io.model_folder import USUAL
from scaseg.system import PRECISIONS

if TYPE_CHECKING:
    from scaseg.models.segmenter import Segmenter

HOST, PORT = "127.0.0.1", 8765
TOKEN = "SCASEG_TOKEN"  # a variable of the environment: every user sees a command line


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "serve",
        help="the explorer's API as a service: segment over HTTP, with metrics",
        description="Segment images over HTTP: POST /api/labels returns a label map, /api/images "
        "keeps an image for maps and occlusion; /api/openapi.json describes it all. Requests are "
        "batched; GET /health, /ready and /metrics tell how it does. SIGTERM lets what was taken "
        "be answered.",
        epilog="example: scaseg serve --model runs/first --port 8000; then curl -F "
        "image=@photo.jpg http://127.0.0.1:8000/api/labels -o labels.png",
    )
    add_models(parser)
    add_with_context(parser)
    add_device(parser)
    about = "of activations, for /api/labels (%(default)s)"
    add_option(parser, "--precision", about, choices=PRECISIONS, default="32")
    add_option(parser, "--quiet", "print the address alone")
    option = partial(add_option, group := parser.add_argument_group("the server"))
    add_server(group)
    about = "larger images are refused before they are decoded (%(default)s)"
    option("--max-pixels N", about, default=12_000_000)
    option("--workers N", "threads that compute (one a core; 2 on a GPU)")
    option("--batch-size N", "images at once (1; 8 on a GPU)")
    option("--queue N", "requests that wait before 503 is answered")
    about = "after SIGTERM, still take requests while /ready says 503 (%(default)s)"
    option("--drain SECONDS", about, type=whole(0, 3600), default=0)
    about = "then answer what was taken, for so long at most (%(default)s)"
    option("--grace SECONDS", about, type=whole(1, 3600), default=30)
    parser.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> None:
    prepare_server()
    try:
        import prometheus_client  # noqa: F401  # before a model is loaded

        from scaseg.explorer.serve import check_host, serve
    except ImportError as error:
        remedy = "pip install 'scaseg[serve]'"
        raise UserError("serve", f"{error.name} is not installed", remedy) from error
    host, token = options.host or HOST, token_of(options)
    check_host(host, token)

    def announce(address: str) -> None:
        text = address if options.quiet else f"serving at {address} (SIGTERM or Ctrl-C ends it)"
        print(text, flush=True)

    serve(
        load_models(options),
        host=host,
        port=PORT if options.port is None else options.port,
        token=token,
        max_pixels=options.max_pixels,
        workers=options.workers,
        batch_size=options.batch_size,
        precision=options.precision,
        queued=options.queue,
        drain=options.drain,
        grace=options.grace,
        announce=announce,
    )


def add_models(parser: Parser) -> None:
    """--model, several of them; `load_models` loads them."""
    about = f"run folders, others by save_pretrained, or {USUAL}: built in, and the default"
    add_option(parser, "--model MODEL", about, nargs="+", default=[None])


def add_server(group: argparse._ActionsContainer) -> None:
    """--port, --host, --token."""
    option = partial(add_option, group)
    option("--port N", f"0 for any that is free ({PORT})", type=whole(0, 65535))
    option("--host ADDRESS", f"others than this machine need a --token ({HOST})")
    option("--token TEXT", f"what every visitor must show (the variable {TOKEN})")


def token_of(options: argparse.Namespace) -> str | None:
    """The token that was given, by the option or by the environment."""
    return options.token or os.environ.get(TOKEN) or None


def load_models(options: argparse.Namespace) -> dict[str, Segmenter]:
    """Load the models of --model, each by a name that tells it apart."""
    folders = [find("--model", name) for name in options.model]
    names = _distinct([name or USUAL for name in options.model])
    return {
        name: load("--model", folder, options.device)
        for name, folder in zip(names, folders, strict=True)
    }


def prepare_server() -> None:
    """Bound the memory of a process that meets images of every size; before torch is used."""
    # oneDNN keeps what it compiled for 1,024 layers: gigabytes, where every picture has a size of
    # its own. These are enough for two sizes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def _distinct(names: list[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    for parts in range(1, 9):
        short = [str(Path(*Path(name).parts[-parts:])) for name in names]
        if len(set(short)) == len(names):
            return short
    raise UserError("--model", f"{names[0]} comes twice", "give each once")
