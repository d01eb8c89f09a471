import asyncio
import dataclasses
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread

import numpy as np
import pytest
import torch
from PIL import Image

from tests.explorer.test_payload import network, picture

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'scaseg[explorer]'")
from starlette.testclient import TestClient

from scaseg.explanation.features import extract_features
from scaseg.explorer import server
from scaseg.explorer.pictures import shared_picture
from scaseg.explorer.server import create_app
from scaseg.explorer.work import FEATURES, THREADS, Work
from scaseg.registry import CONTEXTS

HOST = "http://127.0.0.1"


def png(pixels=None, **options):
    buffer = io.BytesIO()
    Image.fromarray(picture() if pixels is None else pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


def application(models=None, *, queued=16, workers=1, shared=None, **options):
    torch.manual_seed(0)
    models = models or {"first": network("sca"), "second": network("none")}
    work = Work(models, queued=queued, workers=workers)
    shared = [shared_picture("shared.png", picture())] if shared is None else shared
    return create_app(work, shared, **options)


def client(app=None, **options):
    return TestClient(app or application(**options), base_url=HOST)


def send(web, data=None, **options):
    files = {"image": ("x.png", png() if data is None else data)}
    return web.post("/api/images", files=files, **options)


def test_a_picture_is_segmented_and_every_answer_is_that_of_python():
    web = client()
    answer = send(web)
    assert answer.status_code == 201
    found = answer.json()
    assert (found["width"], found["height"]) == (90, 61)
    assert abs(sum(found["areas"].values()) - 1) < 1e-6
    assert answer.headers["location"] == f"/api/images/{found['id']}"
    assert web.get(f"/api/images/{found['id']}").json() == found

    model = network("sca")
    expected = model.predict(picture())
    labels = web.get(f"/api/images/{found['id']}/labels.png")
    assert labels.headers["content-type"] == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(labels.content))), expected.labels)
    other = web.get(f"/api/images/{found['id']}/labels.png?model=second").content
    expected = network("none").predict(picture()).labels
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(other))), expected)

    features = extract_features(model, picture())
    got = web.get(f"/api/images/{found['id']}/dependency?row=3&col=5").json()
    shares = features.context.dependency_map(features.features, 3, 5)[0].detach()
    assert (got["height"], got["width"]) == tuple(shares.shape)
    np.testing.assert_allclose(got["shares"], shares.flatten(), rtol=1e-5, atol=1e-8)

    occluded = web.get(f"/api/images/{found['id']}/occlusion?row=3&col=5&part=0.3").json()
    for when in ("before", "after"):
        assert abs(sum(occluded[when].values()) - 1) < 1e-5
    held = shares.flatten()[occluded["removed"]].sum()
    assert 0.3 <= held < 0.35
    assert occluded["before"] != occluded["after"]
    nothing = web.get(f"/api/images/{found['id']}/occlusion?row=3&col=5&part=0").json()
    assert nothing["before"] == nothing["after"]


def test_every_context_answers_with_its_maps_or_says_that_it_has_none():
    models = {name: network(name) for name in CONTEXTS}
    web = client(models=models)
    key = send(web).json()["id"]
    for name, model in models.items():
        labels = web.get(f"/api/images/{key}/labels.png?model={name}").content
        expected = model.predict(picture()).labels
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(labels))), expected), name
        asked = f"row=3&col=5&model={name}"
        got = web.get(f"/api/images/{key}/dependency?{asked}")
        if name == "none" or not model.context.has_maps:
            assert got.status_code == 422, name
            continue
        features = extract_features(model, picture())
        shares = features.context.dependency_map(features.features, 3, 5)[0].detach()
        np.testing.assert_allclose(got.json()["shares"], shares.flatten(), rtol=1e-5, atol=1e-8)
        occluded = web.get(f"/api/images/{key}/occlusion?part=0.3&{asked}").json()
        others = 1 - shares[3, 5]  # its own share stays
        assert shares.flatten()[occluded["removed"]].sum() >= 0.3 * others - 1e-6, name
        for when in ("before", "after"):
            assert abs(sum(occluded[when].values()) - 1) < 1e-5, name
        assert occluded["before"] != occluded["after"], name


def test_the_page_has_its_parts_and_a_strict_policy():
    web = client()
    page = web.get("/")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    for name in ("server.js", "style.css", "app.js"):
        assert web.get(f"/static/{name}").status_code == 200
    for name in ("package.json", "page.html", "..%2fpage.py", "nothing.js"):
        assert web.get(f"/static/{name}").status_code == 404
    schema = web.get("/api/openapi.json").json()
    assert {"/api/images", "/api/images/{key}/dependency", "/health"} <= set(schema["paths"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 400),
        ({"host": "evil.example:80", "origin": "http://evil.example"}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": HOST}, 200),
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:9"}, 200),
    ],
)
def test_requests_must_come_from_here(headers, status):
    assert client().get("/api/images", headers=headers).status_code == status


def test_a_large_picture_is_made_smaller_beside_the_server(monkeypatch):
    """Not by it: meanwhile it would answer nobody."""
    threads = []
    monkeypatch.setattr(
        server, "shrink", lambda image, _: threads.append(current_thread().name) or image
    )
    assert send(client()).status_code == 201
    assert threads[0].startswith(THREADS)


def test_every_picture_has_the_maps_of_its_own_features():
    """Features are kept for a few pictures: never one's for another, nor those of a lost one."""
    app, model = application(), network("sca")
    images = [picture() // divisor for divisor in range(1, FEATURES + 2)]
    visitors = [client(app) for _ in images]
    keys = [send(web, png(one)).json()["id"] for web, one in zip(visitors, images, strict=True)]
    for _ in range(2):
        for web, key, image in zip(visitors, keys, images, strict=True):
            found = web.get(f"/api/images/{key}/dependency?row=3&col=5").json()["shares"]
            features = extract_features(model, image)
            shares = features.context.dependency_map(features.features, 3, 5).detach()
            np.testing.assert_allclose(found, shares.flatten(), rtol=1e-5, atol=1e-8)


def test_a_full_queue_says_when_to_come_again_and_health_answers():
    model, started, go_on = network("sca"), Event(), Event()

    def wait(*_):
        started.set()
        go_on.wait(240)

    model.backbone.register_forward_pre_hook(wait)
    with client(models={"m": model}, queued=1) as web, ThreadPoolExecutor(2) as threads:
        [shared] = web.get("/api/images").json()
        address = f"/api/images/{shared['id']}"
        first = threads.submit(web.get, address)
        started.wait(240)
        same = threads.submit(web.get, f"{address}/labels.png")  # waits for the same result
        assert web.get("/health").json()["pending"] == 1
        for busy in (send(web), send(web, b"no picture")):
            assert busy.status_code == 503
            assert int(busy.headers["retry-after"]) > 0
            assert busy.json() == {"error": "busy; try again"}
        go_on.set()
        assert first.result().status_code == same.result().status_code == 200
        assert send(web).status_code == 201


def test_a_fault_of_ours_is_one_line_and_the_server_lives(capsys):
    model = network("sca")

    def fail(*_):
        raise RuntimeError("secret")

    hook = model.backbone.register_forward_pre_hook(fail)
    web = client(models={"m": model})
    answer = send(web)
    assert answer.status_code == 500
    assert answer.json() == {"error": "the server failed: RuntimeError"}
    assert "RuntimeError" in capsys.readouterr().err
    hook.remove()
    assert send(web).status_code == 201


def test_the_fault_of_one_picture_is_not_that_of_its_batch():
    work = Work({"m": network("sca")}, batch_size=8)

    def inverse(numbers):
        return [1 / number for number in numbers]

    async def all_of_them():
        first = asyncio.create_task(work.run(all_wait.wait))
        await asyncio.sleep(0)
        others = [asyncio.create_task(work.batched(inverse, number)) for number in (1, 0, 4)]
        await asyncio.sleep(0)  # each has begun
        all_wait.set()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    sizes, all_wait = [], threading.Event()
    work.on_batch = sizes.append
    one, fault, quarter = asyncio.run(all_of_them())
    assert (one, quarter) == (1, 0.25)
    assert isinstance(fault, ZeroDivisionError)
    assert sizes == [3]


def test_photographs_are_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    buffer = io.BytesIO()
    Image.fromarray(picture(40, 64)).save(buffer, "JPEG", exif=exif)
    found = send(client(), buffer.getvalue()).json()
    assert (found["width"], found["height"]) == (40, 64)


def test_pictures_of_several_bands():
    model = network("sca", in_channels=5)
    scale = {"mean": (2000.0,) * 5, "std": (1000.0,) * 5}
    model.config = dataclasses.replace(model.config, dtype="uint16", **scale)
    pixels = np.random.default_rng(0).integers(0, 4000, (48, 64, 5), np.uint16)
    buffer = io.BytesIO()
    np.save(buffer, pixels)
    web = client(models={"m": model}, shared=[])
    found = send(web, buffer.getvalue()).json()
    labels = web.get(f"/api/images/{found['id']}/labels.png").content
    expected = model.predict(pixels.astype(np.float32)).labels
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(labels))), expected)
    view = web.get(f"/api/images/{found['id']}/view").json()
    assert view["image"]["src"].startswith("data:image/jpeg")
    small = web.get(f"/api/images/{found['id']}/thumbnail.jpg").content
    assert Image.open(io.BytesIO(small)).mode == "RGB"
    answer = send(web)
    assert answer.status_code == 422
    assert "has 3 bands of uint8" in answer.json()["error"]


def test_many_at_once_get_their_own_results():
    app = application(queued=1000, workers=2)
    sizes = [(40 + number, 50) for number in range(12)]
    images = [np.full((*size, 3), 20 * number, np.uint8) for number, size in enumerate(sizes)]

    def visit(number):
        web = client(app)
        found = send(web, png(images[number % 12])).json()
        labels = web.get(f"/api/images/{found['id']}/labels.png").content
        return (found["height"], found["width"]), np.asarray(Image.open(io.BytesIO(labels)))

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(visit, range(48)))
    model = network("sca")
    for number, (size, labels) in enumerate(answers):
        assert size == sizes[number % 12]
        if number < 12:
            assert np.array_equal(labels, model.predict(images[number]).labels)


def test_the_view_is_what_the_page_reads():
    web = client()
    [shared] = web.get("/api/images").json()
    view = json.loads(web.get(f"/api/images/{shared['id']}/view").content)
    assert [one["name"] for one in view["models"]] == ["first", "second"]
    assert view["image"]["src"].startswith("data:image/jpeg")
