"""scaseg serve, and what it shares with scaseg explore."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.options import add_with_context, find, load
from scaseg.cli.parser import Parser, positive, whole
from scaseg.errors import UserError
from scaseg.io.model_folder import USUAL
from scaseg.system import DEVICES, PRECISIONS

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
    parser.add_argument("--device", choices=DEVICES, default="auto", help="(%(default)s)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="32",
        help="of activations, for /api/labels (%(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="print the address alone")
    group = parser.add_argument_group("the server")
    add_server(group)
    group.add_argument(
        "--max-pixels",
        type=positive,
        default=12_000_000,
        metavar="N",
        help="larger images are refused before they are decoded (%(default)s)",
    )
    group.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="threads that compute (one a core; 2 on a GPU)",
    )
    group.add_argument(
        "--batch-size", type=positive, metavar="N", help="images at once (1; 8 on a GPU)"
    )
    group.add_argument(
        "--queue", type=positive, metavar="N", help="requests that wait before 503 is answered"
    )
    group.add_argument(
        "--drain",
        type=whole(0, 3600),
        default=0,
        metavar="SECONDS",
        help="after SIGTERM, still take requests while /ready says 503 (%(default)s)",
    )
    group.add_argument(
        "--grace",
        type=whole(1, 3600),
        default=30,
        metavar="SECONDS",
        help="then answer what was taken, for so long at most (%(default)s)",
    )
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
    parser.add_argument(
        "--model",
        nargs="+",
        default=[None],
        metavar="MODEL",
        help=f"run folders, others by save_pretrained, or {USUAL}: built in, and the default",
    )


def add_server(group: argparse._ActionsContainer) -> None:
    """--port, --host, --token."""
    group.add_argument(
        "--port", type=whole(0, 65535), metavar="N", help=f"0 for any that is free ({PORT})"
    )
    group.add_argument(
        "--host", metavar="ADDRESS", help=f"others than this machine need a --token ({HOST})"
    )
    group.add_argument(
        "--token", metavar="TEXT", help=f"what every visitor must show (the variable {TOKEN})"
    )


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
