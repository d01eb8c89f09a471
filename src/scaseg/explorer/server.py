"""The explorer's server: the page, and a JSON API under /api that scripts can use.

It trusts nobody: requests must name this machine (Host), come from this page or from no page
(Origin), carry the token where there is one, and stay within limits of size, time and number. A
client never names a path or an address, and nothing of a picture is logged.
"""

from __future__ import annotations

import io
import json
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

from fastapi import FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scaseg.data.decode.image import read_image
from scaseg.errors import UserError, one_line
from scaseg.explorer.page import STATIC, export_page, server_page
from scaseg.explorer.payload import shrink
from scaseg.explorer.pictures import Picture, Pictures
from scaseg.explorer.work import BusyError, Work
from scaseg.models.segmenter import Segmenter
from scaseg.version import __version__

SESSION, TOKEN = "scaseg_session", "scaseg_token"  # cookies
MOST_UPLOAD = 20 << 20  # bytes
MOST_PIXELS = 50_000_000
RETRY = 2  # seconds after which a busy server may be asked again
KINDS = {".js": "text/javascript", ".css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Neuron = Annotated[int, Query(ge=0, le=1_000_000)]


@dataclass(frozen=True)
class Guard:
    """What a request must fulfil; host: the address that the server listens on."""

    host: str = "127.0.0.1"
    token: str | None = None  # that every request must carry, but for /health
    most_upload: int = MOST_UPLOAD

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Return a status and a line where a request is refused."""
        named = request.url.hostname or ""
        if not (self._is_here(named) or (self.token and named)):
            return 400, f"Host {named!r} is not this server"
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.headers['host']}":
            return 403, "requests of other pages are refused"
        if self.token is not None and request.url.path != "/health":
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
    """Counts the bytes of a request as they come: a length that lies must not fill a disk."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                raise HTTPException(413, f"more than {self._most >> 20} MiB")
            return message

        await self._app(scope, counted, send)


def create_app(
    load: Callable[[], Mapping[str, Segmenter]],
    shared: list[Picture],
    *,
    guard: Guard | None = None,
    queued: int | None = None,
    pictures: Pictures | None = None,
) -> FastAPI:
    """Return the application; load: gives the models by name when they are first needed.

    shared: pictures that every visitor sees.
    """
    limits = guard or Guard()
    work = Work(load) if queued is None else Work(load, queued)
    held = pictures or Pictures()
    for picture in shared:
        held.add(picture)
    app = FastAPI(
        title="scaseg explorer",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # their page would fetch scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(BodyLimit, most=limits.most_upload)

    @app.middleware("http")
    async def protect(request: Request, call_next: Any) -> Response:
        if refused := limits.refusal(request):
            answer: Response = _problem(*refused)
        else:
            answer = await call_next(request)
            _set_cookies(request, answer, limits)
        for name, value in HEADERS.items():
            answer.headers[name] = value
        return answer

    def found(key: str, request: Request) -> Picture:
        picture = held.find(key, request.cookies.get(SESSION))
        if picture is None:
            raise HTTPException(404, "no such picture, or it has expired")
        return picture

    async def segmented(key: str, request: Request) -> Picture:
        picture = found(key, request)
        if not picture.payload:
            await work.segment(picture)
        return picture

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        return _problem(error.status_code, str(error.detail))

    @app.exception_handler(UserError)
    async def on_user(request: Request, error: UserError) -> Response:
        return _problem(422, str(error))

    @app.exception_handler(BusyError)
    async def on_busy(request: Request, error: BusyError) -> Response:
        answer = _problem(503, "busy; try again")
        answer.headers["Retry-After"] = str(RETRY)
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "request"
        return _problem(422, f"{place}: {first['msg']}")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Say that the server is alive, and how many requests wait; it answers while it works."""
        return {"status": "ok", "version": __version__, "pending": work.pending}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(server_page(), media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        known = {file.name: file for file in STATIC.iterdir()}
        kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
        if name not in known or kind is None:
            raise HTTPException(404, "no such file")
        return Response(known[name].read_bytes(), media_type=kind)

    @app.get("/api/images")
    async def list_images(request: Request) -> list[dict[str, Any]]:
        """List the pictures of this visitor, and those that everyone sees."""
        visitor = request.cookies.get(SESSION)
        return [{"id": one.id, "name": one.name} for one in held.seen_by(visitor)]

    @app.post("/api/images", status_code=201)
    async def upload(
        request: Request, response: Response, image: Annotated[UploadFile, File()]
    ) -> dict[str, Any]:
        """Segment a picture: multipart field `image`, JPEG, PNG, WebP, TIFF or BMP."""
        data = await image.read()
        pixels = await work.run(lambda: _decode(data, work))
        # a program without a session shows the id instead, which no browser can guess
        owner = request.cookies.get(SESSION) or secrets.token_urlsafe(16)
        name = one_line(image.filename or "picture").rpartition("/")[2][-80:]
        picture = Picture(name, pixels, owner)
        await work.segment(picture)
        held.add(picture)
        response.headers["Location"] = f"/api/images/{picture.id}"
        return picture.summary

    @app.get("/api/images/{key}")
    async def describe(key: str, request: Request) -> dict[str, Any]:
        """Size, classes and areas of a picture, for every model."""
        return (await segmented(key, request)).summary

    @app.delete("/api/images/{key}", status_code=204)
    async def forget(key: str, request: Request) -> None:
        """Forget a picture; those that everyone sees stay."""
        picture = found(key, request)
        if picture.owner is None:
            raise HTTPException(403, "this picture is everyone's")
        held.remove(picture)

    @app.get("/api/images/{key}/view", include_in_schema=False)
    async def view(key: str, request: Request) -> Response:
        picture = await segmented(key, request)
        return Response(picture.payload, media_type="application/json")

    @app.get("/api/images/{key}/page.html", response_class=Response)
    async def keep(key: str, request: Request) -> Response:
        """The picture as a page of its own, which needs no server."""
        picture = await segmented(key, request)
        page = export_page([json.loads(picture.payload)])
        headers = {"Content-Disposition": "attachment; filename=page.html"}
        return Response(page, media_type="text/html", headers=headers)

    @app.get("/api/images/{key}/thumbnail.jpg", include_in_schema=False)
    async def thumbnail(key: str, request: Request) -> Response:
        small = Image.fromarray(found(key, request).pixels)
        small.thumbnail((192, 128))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=80)
        return Response(buffer.getvalue(), media_type="image/jpeg")

    @app.get("/api/images/{key}/labels.png", response_class=Response)
    async def labels(key: str, request: Request, model: str | None = None) -> Response:
        """The label map as a palette PNG: a pixel's value is its class."""
        picture = await segmented(key, request)
        name = model or next(iter(picture.labels))
        if name not in picture.labels:
            raise UserError.choice("model", name, picture.labels)
        return Response(picture.labels[name], media_type="image/png")

    @app.get("/api/images/{key}/dependency")
    async def dependency(
        key: str, request: Request, row: Neuron, col: Neuron, model: str | None = None
    ) -> dict[str, Any]:
        """What a neuron depends on: `shares` row by row, (row, col) of the feature map."""
        picture = await segmented(key, request)
        return await work.run(lambda: work.dependency(picture, model, row, col))

    @app.get("/api/images/{key}/occlusion")
    async def occlusion(
        key: str,
        request: Request,
        row: Neuron,
        col: Neuron,
        part: Annotated[float, Query(ge=0, lt=1)],
        model: str | None = None,
    ) -> dict[str, Any]:
        """A neuron's probabilities, and those without the strongest `part` of its sources."""
        picture = await segmented(key, request)
        return await work.run(lambda: work.occlusion(picture, model, row, col, part))

    return app


def _decode(data: bytes, work: Work) -> Any:
    """Decode an upload as files of strangers are; its name is not the client's."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            pixels = read_image(file.name, max_pixels=MOST_PIXELS)
        except UserError as error:
            raise UserError("image", error.problem, error.remedy, error.detail) from error
    if min(pixels.shape[:2]) < 8:
        raise UserError("image", "smaller than 8 x 8 pixels", "give a larger one")
    return shrink(pixels, max(len(model.classes) for model in work.models().values()))


def _problem(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": one_line(text)}, status)


def _set_cookies(request: Request, answer: Response, guard: Guard) -> None:
    """Give a new browser a session, and keep the token that its first address held."""
    cookie: dict[str, Any] = {"httponly": True, "samesite": "strict"}
    if request.url.path == "/" and SESSION not in request.cookies:
        answer.set_cookie(SESSION, secrets.token_urlsafe(16), **cookie)
    if guard.token is not None and request.query_params.get("token") == guard.token:
        answer.set_cookie(TOKEN, guard.token, **cookie)
