"""Run the explorer, or its API as a service, until a signal ends it."""

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
from threading import Event, Timer
from types import FrameType

import numpy as np
import uvicorn
from fastapi import FastAPI

from scaseg.errors import UserError
from scaseg.explorer.guard import Guard
from scaseg.explorer.payload import read_picture, shrink
from scaseg.explorer.pictures import shared_picture
from scaseg.explorer.server import create_app
from scaseg.explorer.work import QUEUED, Work
from scaseg.inference.predict import predict
from scaseg.models.folding import for_prediction
from scaseg.models.segmenter import Segmenter
from scaseg.system import Precision, usable_cores

EXAMPLES = files("scaseg.explorer") / "examples"


def example_pictures() -> list[Path]:
    """Two photographs that come with the package, for a first visit."""
    return [Path(str(EXAMPLES / name)) for name in ("summer_palace.jpg", "rocket.jpg")]


def explore(
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
    """Serve the page until Ctrl-C. port 0: any that is free; announce is called with the address.

    images: pictures that every visitor sees.
    """
    check_host(host, token)
    pictures = [
        shared_picture(path.name, shrink(read_picture(path, models, max_pixels), models))
        for path in images
    ]
    with _listen(host, port) as listening:
        visit = _address(host, listening) + (f"?token={token}" if token else "")
        announce(visit)
        if browser:
            webbrowser.open(visit)
        work = Work(models)
        app = create_app(work, pictures, guard=Guard(host, token))
        _run(_Server(_config(app, grace=1)), work, listening)


def serve(
    models: Mapping[str, Segmenter],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    max_pixels: int = 12_000_000,
    workers: int | None = None,
    batch_size: int | None = None,
    precision: Precision = "32",
    queued: int | None = None,
    drain: float = 0.0,
    grace: float = 30.0,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the API without the page, with metrics, until SIGTERM or Ctrl-C.

    workers: threads that compute (one a core on a CPU, 2 elsewhere: one prepares a batch while the
    other's is computed). queued: requests that wait; others are told to come again (8 a worker and
    image of a batch). The first signal turns /ready to 503; after `drain` seconds, in which a load
    balancer may notice, nothing new is taken, and what was taken is answered, for `grace` seconds
    at most. A second signal ends it at once.
    """
    from scaseg.explorer.metrics import Metrics

    check_host(host, token)
    is_cpu = next(iter(models.values())).device.type == "cpu"
    for model in models.values():
        if is_cpu:  # not measured elsewhere
            for_prediction(model)
        kind = np.uint8 if model.config.dtype == "uint8" else np.float32
        # what compiles itself at the first image does it now
        predict(model, np.zeros((64, 64, model.config.in_channels), kind), precision=precision)
    workers = workers or (usable_cores() if is_cpu else 2)
    batch_size = batch_size or (1 if is_cpu else 8)
    queued = queued or max(QUEUED, 8 * workers * batch_size)
    with _listen(host, port) as listening:
        work = Work(
            models, queued=queued, workers=workers, batch_size=batch_size, precision=precision
        )
        draining = Event()
        app = create_app(
            work,
            [],
            guard=Guard(host, token, most_pixels=max_pixels, most_active=4 * queued),
            page=False,
            metrics=Metrics(),
            is_ready=lambda: not draining.is_set(),
        )
        announce(_address(host, listening))
        _run(_Server(_config(app, grace), draining, drain), work, listening)


class _Server(uvicorn.Server):
    """Ends at a signal; with an event, sets it and goes on for `drain` seconds before it does."""

    def __init__(
        self, config: uvicorn.Config, draining: Event | None = None, drain: float = 0.0
    ) -> None:
        super().__init__(config)
        self._draining, self._drain = draining, drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None and not self._draining.is_set():
            self._draining.set()
            timer = Timer(self._drain, setattr, (self, "should_exit", True))
            timer.daemon = True
            timer.start()
            return
        # requests that are cut off now would each be logged with a traceback
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.should_exit = True
        self.force_exit = self._draining is not None  # a second signal


def _config(app: FastAPI, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # it would hold addresses of visitors
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace)),
        limit_concurrency=1000,  # connections; the application answers earlier, and better
    )


def _run(server: _Server, work: Work, listening: socket.socket) -> None:
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    if work.close():  # a network that still computes would keep the process for seconds
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        remedy = "give another, or --port 0 for any that is free"
        raise UserError.cannot_be("opened", f"--port {port}", error, remedy) from error


def _address(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def check_host(host: str, token: str | None) -> None:
    """Refuse an address that other machines can reach, but for those who show a token."""
    if not is_loopback(host) and not token:
        problem = f"{host} can be reached from other machines"
        raise UserError("--host", problem, "give a --token, which every visitor must show")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise UserError("--host", host, "give an address, such as 127.0.0.1") from None
