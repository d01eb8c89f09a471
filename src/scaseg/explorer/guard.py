"""What the server asks of every request: where it comes from, its token, its size and its time."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from ipaddress import ip_address

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "scaseg_token"  # a cookie
MOST_UPLOAD = 20 << 20  # bytes
UPLOAD_TIME = 60.0  # seconds within which a request must have come
MOST_PIXELS = 50_000_000
MOST_ACTIVE = 200  # requests that are being received, computed or answered
OPEN = ("/health", "/ready")  # without a token: what starts and stops servers asks for these


@dataclass(frozen=True)
class Guard:
    """What a request must fulfil; host: the address that the server listens on."""

    host: str = "127.0.0.1"
    token: str | None = None  # that every request must carry, but for OPEN
    most_upload: int = MOST_UPLOAD
    upload_time: float = UPLOAD_TIME
    most_pixels: int = MOST_PIXELS
    most_active: int = MOST_ACTIVE

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Return a status and a line where a request is refused."""
        named = request.url.hostname or ""
        if not (self._is_here(named) or (self.token and named)):
            return 400, f"Host {named!r} is not this server"
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
            return 403, "requests of other pages are refused"
        if self.token is not None and request.url.path not in OPEN:
            shown = request.headers.get("authorization", "").removeprefix("Bearer ")
            given = shown or request.query_params.get("token") or request.cookies.get(TOKEN) or ""
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return 401, "give the token: ?token=..., or Authorization: Bearer ..."
        if int(request.headers.get("content-length") or 0) > self.most_upload:
            return 413, f"more than {self.most_upload >> 20} MiB"
        return None

    def _is_here(self, name: str) -> bool:
        try:
            return ip_address(name.strip("[]")).is_loopback or name == self.host
        except ValueError:
            return name in ("localhost", self.host)


class BodyLimit:
    """Counts the bytes of a request as they come: a length that lies must not fill a disk.

    Nor may a request that comes in drops hold its place for ever.
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        came, is_whole = 0, False
        until = asyncio.get_running_loop().time() + self._guard.upload_time

        async def counted() -> Message:
            nonlocal came, is_whole
            if is_whole:  # what comes now is that the client has left
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                problem = f"more than {self._guard.upload_time:g} s to send the request"
                raise HTTPException(408, problem) from None
            came += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if came > self._guard.most_upload:
                raise HTTPException(413, f"more than {self._guard.most_upload >> 20} MiB")
            return message

        await self._app(scope, counted, send)
