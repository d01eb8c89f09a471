"""Run the explorer's server on this machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import uvicorn

from scaseg.errors import UserError
from scaseg.explorer.guard import Guard
from scaseg.explorer.payload import read_picture
from scaseg.explorer.pictures import shared_picture
from scaseg.explorer.server import create_app
from scaseg.explorer.work import Work
from scaseg.models.segmenter import Segmenter

EXAMPLES = files("scaseg.explorer") / "examples"


def example_pictures() -> list[Path]:
    """Two photographs that come with the package, for a first visit."""
    return [Path(str(EXAMPLES / name)) for name in ("summer_palace.jpg", "rocket.jpg")]


def serve(
    models: Mapping[str, Segmenter],
    images: list[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    max_pixels: int | None = None,
    browser: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until Ctrl-C. port 0: any that is free; announce is called with the address."""
    if not is_loopback(host) and not token:
        problem = f"{host} can be reached from other machines"
        raise UserError("--host", problem, "give a --token, which every visitor must show")
    pictures = [
        shared_picture(path.name, read_picture(path, models, max_pixels)) for path in images
    ]
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        remedy = "give another, or --port 0 for any that is free"
        raise UserError.cannot_be("opened", f"--port {port}", error, remedy) from error
    with listening:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        visit = f"{address}?token={token}" if token else address
        announce(visit)
        work = Work(models)
        app = create_app(work, pictures, guard=Guard(host, token))
        # the access log would hold addresses of visitors
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            limit_concurrency=1000,  # connections; the application answers earlier, and better
        )
        if browser:
            webbrowser.open(visit)
        with suppress(KeyboardInterrupt):
            _Server(config).run(sockets=[listening])
        if work.close():  # a network that still computes would keep the process for seconds
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # requests that are cut off now would each be logged with a traceback
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise UserError("--host", host, "give an address, such as 127.0.0.1") from None
