"""The explorer's server: the page, and a JSON API under /api that scripts can use.

It trusts nobody: requests must name this machine (Host), come from this page or from no page
(Origin), carry the token where there is one, and stay within limits of size, time and number. A
client never names a path or an address, and nothing of a picture is logged.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from PIL import Image
from starlette.exceptions import HTTPException

from scaseg.data.decode.bands import picture as as_photograph
from scaseg.data.decode.files import Embedded
from scaseg.errors import UserError, one_line
from scaseg.explorer.guard import OPEN, TOKEN, BodyLimit, Guard
from scaseg.explorer.page import STATIC, export_page, server_page
from scaseg.explorer.payload import read_picture, shrink
from scaseg.explorer.pictures import PROGRAM, Picture, Pictures
from scaseg.explorer.work import BusyError, Work, as_png
from scaseg.plots.palette import default_palette
from scaseg.version import __version__

if TYPE_CHECKING:
    from scaseg.explorer.metrics import Metrics

SESSION = "scaseg_session"  # a cookie
RETRY = 2  # seconds after which a busy server may be asked again
SWEEP = 60.0  # seconds after which expired pictures are looked for
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


def create_app(
    work: Work,
    shared: list[Picture],
    *,
    guard: Guard | None = None,
    pictures: Pictures | None = None,
    page: bool = True,
    metrics: Metrics | None = None,
    is_ready: Callable[[], bool] = lambda: True,
) -> FastAPI:
    """Return the application; shared: pictures that every visitor sees.

    page: the explorer's, beside the API. metrics: what GET /metrics shows. is_ready: what GET
    /ready says.
    """
    limits = guard or Guard()
    held = pictures or Pictures()
    active = 0
    for picture in shared:
        held.add(picture)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP)
                held.forget_expired()

        task = asyncio.create_task(sweep())
        yield
        task.cancel()

    app = FastAPI(
        title="scaseg explorer" if page else "scaseg",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # their page would fetch scripts from elsewhere
        redoc_url=None,
        lifespan=running,
    )
    app.add_middleware(BodyLimit, guard=limits)

    @app.middleware("http")
    async def protect(request: Request, call_next: Any) -> Response:
        nonlocal active
        began = time.perf_counter()
        if refused := limits.refusal(request):
            answer: Response = _problem(*refused)
        elif active >= limits.most_active and request.url.path not in OPEN:
            answer = _busy()
        else:
            active += 1
            try:
                answer = await call_next(request)
            except Exception as error:
                # the traceback goes to stderr; the visitor gets its name alone
                traceback.print_exception(error)
                answer = _problem(500, f"the server failed: {type(error).__name__}")
            finally:
                active -= 1
            _set_cookies(request, answer, limits)
        for name, value in HEADERS.items():
            answer.headers[name] = value
        if metrics is not None:
            route = getattr(request.scope.get("route"), "path", "other")
            metrics.count(route, answer.status_code, time.perf_counter() - began)
        return answer

    def found(key: str, request: Request) -> Picture:
        picture = held.find(key, request.cookies.get(SESSION))
        if picture is None:
            raise HTTPException(404, "no such picture, or it has expired")
        return picture

    async def segmented(key: str, request: Request) -> Picture:
        picture = found(key, request)
        async with picture.segmenting:  # others wait: they would only compute it again
            if not picture.payload:
                async with work.slot():
                    await work.batched(work.segment, picture)
        return picture

    async def decoded(image: UploadFile) -> Any:
        # by its content, as files of strangers are; its name is not asked for
        file = Embedded(await image.read(), "image")
        return await work.run_small(lambda: read_picture(file, work.models, limits.most_pixels))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        return _problem(error.status_code, str(error.detail))

    @app.exception_handler(UserError)
    async def on_user(request: Request, error: UserError) -> Response:
        return _problem(422, str(error))

    @app.exception_handler(BusyError)
    async def on_busy(request: Request, error: BusyError) -> Response:
        return _busy()

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "request"
        return _problem(422, f"{place}: {first['msg']}")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Say that the server is alive, and how many requests wait; it answers while it works."""
        return {"status": "ok", "version": __version__, "pending": work.pending}

    @app.get("/ready", response_model=None)
    async def ready() -> Response | dict[str, Any]:
        """Say whether new requests should be sent here: 503 where the server is about to end."""
        return {"status": "ready"} if is_ready() else _busy("draining; ask another server")

    if metrics is not None:
        metrics.watch(pending=lambda: work.pending, pictures=lambda: held.memory)
        work.on_batch = metrics.count_batch

        @app.get("/metrics", response_class=PlainTextResponse)
        async def show_metrics() -> Response:
            """Counters and timings, as Prometheus reads them."""
            return Response(metrics.text(), media_type=metrics.media_type)

    if page:

        @app.get("/", include_in_schema=False)
        async def show_page(request: Request) -> Response:
            if "token" in request.query_params:  # it is a cookie now: no address need show it
                return RedirectResponse("/", 303)
            return Response(server_page(), media_type="text/html")

        @app.get("/static/{name}", include_in_schema=False)
        async def static(name: str) -> Response:
            known = {file.name: file for file in STATIC.iterdir()}
            kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
            if name not in known or kind is None:
                raise HTTPException(404, "no such file")
            return Response(known[name].read_bytes(), media_type=kind)

    @app.get("/api/models")
    async def list_models() -> list[dict[str, Any]]:
        """The models: their classes, colours and what their images hold."""
        return [
            {
                "name": name,
                "context": model.config.context,
                "classes": list(model.classes),
                "palette": model.config.palette or default_palette(len(model.classes)),
                "bands": model.config.in_channels,
                "dtype": model.config.dtype,
            }
            for name, model in work.models.items()
        ]

    @app.post("/api/labels", response_class=Response)
    async def label(image: Annotated[UploadFile, File()], model: str | None = None) -> Response:
        """Segment an image and keep nothing: multipart field `image` -> labels as a palette PNG."""
        name = work.named(model)
        async with work.slot():
            pixels = await decoded(image)
            found = await work.batched(work.label, (name, pixels))
            png = await work.run_small(lambda: as_png(found))
        return Response(png, media_type="image/png")

    @app.get("/api/images")
    async def list_images(request: Request) -> list[dict[str, Any]]:
        """List the pictures of this visitor, and those that everyone sees."""
        visitor = request.cookies.get(SESSION)
        return [{"id": one.id, "name": one.name} for one in held.seen_by(visitor)]

    @app.post("/api/images", status_code=201)
    async def upload(
        request: Request, response: Response, image: Annotated[UploadFile, File()]
    ) -> dict[str, Any]:
        """Segment a picture: multipart field `image`, JPEG, PNG, WebP, TIFF, BMP (bands: .npy)."""
        async with work.slot():
            whole = await decoded(image)
            pixels = await work.run_small(lambda: shrink(whole, work.models))
            owner = request.cookies.get(SESSION) or PROGRAM
            name = one_line(image.filename or "picture").rpartition("/")[2][-80:]
            picture = Picture(name, pixels, owner)
            await work.batched(work.segment, picture)
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
        small = Image.fromarray(as_photograph(found(key, request).pixels))
        small.thumbnail((192, 128))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=80)
        return Response(buffer.getvalue(), media_type="image/jpeg")

    @app.get("/api/images/{key}/labels.png", response_class=Response)
    async def labels(key: str, request: Request, model: str | None = None) -> Response:
        """The label map as a palette PNG: a pixel's value is its class."""
        picture = await segmented(key, request)
        return Response(picture.labels[work.named(model)], media_type="image/png")

    @app.get("/api/images/{key}/dependency")
    async def dependency(
        key: str, request: Request, row: Neuron, col: Neuron, model: str | None = None
    ) -> dict[str, Any]:
        """What a neuron depends on: `shares` row by row, (row, col) of the feature map."""
        picture = await segmented(key, request)
        async with work.slot():
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
        async with work.slot():
            return await work.run(lambda: work.occlusion(picture, model, row, col, part))

    return app


def _problem(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": one_line(text)}, status)


def _busy(text: str = "busy; try again") -> JSONResponse:
    answer = _problem(503, text)
    answer.headers["Retry-After"] = str(RETRY)
    return answer


def _set_cookies(request: Request, answer: Response, guard: Guard) -> None:
    """Give a new browser a session, and keep the token that its first address held."""
    cookie: dict[str, Any] = {"httponly": True, "samesite": "strict"}
    if request.url.path == "/" and SESSION not in request.cookies:
        answer.set_cookie(SESSION, secrets.token_urlsafe(16), **cookie)
    if guard.token is not None and request.query_params.get("token") == guard.token:
        answer.set_cookie(TOKEN, guard.token, **cookie)
