import asyncio
import dataclasses
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.decode.test_hostile_images import BOMBS
from tests.explorer.test_payload import network, picture
from tests.faults.fuzz_images import case_bytes
from tests.faults.image_seeds import seeds

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'scaseg[explorer]'")
from starlette.requests import Request
from starlette.testclient import TestClient

from scaseg.explanation.features import extract_features
from scaseg.explorer import server
from scaseg.explorer.guard import Guard
from scaseg.explorer.pictures import Picture, Pictures, shared_picture
from scaseg.explorer.server import create_app
from scaseg.explorer.work import FEATURES, THREADS, Work
from scaseg.version import __version__

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


def damaged_checksum():
    data = bytearray(png())
    data[60] ^= 255
    return bytes(data)


def saved(kind):
    buffer = io.BytesIO()
    Image.fromarray(picture(32, 40)).save(buffer, kind)
    return buffer.getvalue()


# what tests/faults puts in the place of photographs, and what its decoders' tests begin with
BAD = {
    "empty": b"",
    "text": b"hello",
    "a web page": b"<html>404</html>",
    "a drawing": b"<svg/>",
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n",
    "header alone": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "torn": png()[:-40],
    "a wrong checksum": damaged_checksum(),
    "a pickle": b"\x80\x04\x95" + bytes(50),
    "tiny": png(np.zeros((4, 4, 3), np.uint8)),
    **{kind: saved(kind) for kind in ("GIF", "ICO", "PPM")},
    **{f"{kind} cut off": saved(kind)[:-300] for kind in ("JPEG", "TIFF", "WEBP", "BMP")},
    **{f"a {kind} of too many pixels": data for kind, data in BOMBS.items()},
}


def test_bad_uploads_are_answered_in_one_line_and_the_server_lives():
    web = client()
    for kind, data in BAD.items():
        answer = send(web, data)
        assert answer.status_code == 422, kind
        assert "\n" not in answer.json()["error"], kind
        assert answer.json()["error"].startswith("image: "), kind
        assert "/tmp" not in answer.text, kind
    assert web.get("/health").json() == {"status": "ok", "version": __version__, "pending": 0}


def test_a_request_without_its_field_or_with_odd_numbers():
    web = client()
    assert web.post("/api/images", files={"picture": ("x.png", png())}).status_code == 422
    [shared] = web.get("/api/images").json()
    for query in ("row=-1&col=0", "row=a&col=0", "row=999&col=0", "col=0", "row=0&col=0&model=x"):
        answer = web.get(f"/api/images/{shared['id']}/dependency?{query}")
        assert answer.status_code == 422
        assert answer.json()["error"]
    assert web.get(f"/api/images/{shared['id']}/occlusion?row=0&col=0&part=1").status_code == 422
    none = web.get(f"/api/images/{shared['id']}/dependency?row=0&col=0&model=second")
    assert none.status_code == 422  # it has no context


def test_uploads_end_at_the_limit_even_if_their_length_lies():
    web = client(guard=Guard(most_upload=1 << 20))
    large = bytes(3 << 20)
    assert send(web, large).status_code == 413
    body = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + large

    def parts():  # chunked: without a length
        for at in range(0, len(body), 65536):
            yield body[at : at + 65536]

    headers = {"content-type": "multipart/form-data; boundary=b"}
    assert web.post("/api/images", content=parts(), headers=headers).status_code == 413


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


def test_a_request_of_another_page_that_names_no_host_is_refused():
    """HTTP/1.0 asks for none."""
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "scheme": "http"}
    scope |= {"server": ("127.0.0.1", 80), "headers": [(b"origin", b"http://evil.example")]}
    assert Guard().refusal(Request(scope))[0] == 403


def test_a_large_picture_is_made_smaller_beside_the_server(monkeypatch):
    """Not by it: meanwhile it would answer nobody."""
    threads = []
    monkeypatch.setattr(
        server, "shrink", lambda image, _: threads.append(current_thread().name) or image
    )
    assert send(client()).status_code == 201
    assert threads[0].startswith(THREADS)


def test_with_a_token_every_visitor_shows_it():
    web = client(guard=Guard("0.0.0.0", "secret"))
    assert web.get("/").status_code == 401
    assert web.get("/?token=wrong").status_code == 401
    assert web.get("/health").status_code == 200
    bearer = {"authorization": "Bearer secret", "host": "machine.example"}
    assert web.get("/api/images", headers=bearer).status_code == 200
    opened = web.get("/?token=secret", follow_redirects=False)
    assert (opened.status_code, opened.headers["location"]) == (303, "/")  # no address shows it
    assert web.get("/").status_code == 200
    assert web.get("/api/images").status_code == 200  # by its cookie


def test_browsers_do_not_see_each_others_pictures():
    app = application()
    one, other, script = client(app), client(app), client(app)
    for browser in (one, other):
        browser.get("/")
    mine = send(one).json()["id"]
    assert mine in [picture["id"] for picture in one.get("/api/images").json()]
    assert mine not in [picture["id"] for picture in other.get("/api/images").json()]
    for path in ("", "/view", "/labels.png", "/dependency?row=0&col=0", "/thumbnail.jpg"):
        assert other.get(f"/api/images/{mine}{path}").status_code == 404
    assert other.delete(f"/api/images/{mine}").status_code == 404
    assert script.get(f"/api/images/{mine}").status_code == 404  # not by its id alone
    theirs = send(script).json()["id"]  # without a session, the id itself is the key
    assert script.get(f"/api/images/{theirs}").status_code == 200
    assert one.get(f"/api/images/{theirs}").status_code == 404
    assert one.delete(f"/api/images/{mine}").status_code == 204
    assert one.get(f"/api/images/{mine}").status_code == 404
    [shared] = other.get("/api/images").json()
    assert other.delete(f"/api/images/{shared['id']}").status_code == 403


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


def test_pictures_expire_and_take_bounded_memory(monkeypatch):
    held = Pictures(most_bytes=100_000, expiry=100)
    pictures = [Picture(str(number), picture(), "me") for number in range(10)]
    shared = Picture("shared", picture(), None)
    for one in (shared, *pictures):
        held.add(one)
    names = [one.name for one in held.seen_by("me")]
    assert names == ["shared", "4", "5", "6", "7", "8", "9"]  # 16,470 bytes each
    assert names == [one.name for one in held.seen_by("me")]
    assert held.find(pictures[4].id, "me") is pictures[4]
    assert [one.name for one in held.seen_by("me")] == names  # the order stays
    held.add(Picture("10", picture(), "me"))
    assert [one.name for one in held.seen_by("me")] == ["shared", "4", "6", "7", "8", "9", "10"]
    later = time.monotonic() + 101
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert [one.name for one in held.seen_by("me")] == ["shared"]


def test_a_full_queue_says_when_to_come_again_and_health_answers():
    model, started, go_on = network("sca"), Event(), Event()

    def wait(*_):
        started.set()
        go_on.wait(20)

    model.backbone.register_forward_pre_hook(wait)
    with client(models={"m": model}, queued=1) as web, ThreadPoolExecutor(2) as threads:
        [shared] = web.get("/api/images").json()
        address = f"/api/images/{shared['id']}"
        first = threads.submit(web.get, address)
        started.wait(20)
        same = threads.submit(web.get, f"{address}/labels.png")  # waits for the same result
        assert web.get("/health").json()["pending"] == 1
        for busy in (send(web), send(web, b"no picture")):
            assert busy.status_code == 503
            assert int(busy.headers["retry-after"]) > 0
            assert busy.json() == {"error": "busy; try again"}
        go_on.set()
        assert first.result().status_code == same.result().status_code == 200
        assert send(web).status_code == 201


def test_more_requests_than_it_serves_at_once_are_told_to_come_again():
    web = client(guard=Guard(most_active=0))
    answer = web.get("/api/images")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert web.get("/health").status_code == 200


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
        first = asyncio.create_task(work.run(lambda: time.sleep(0.2)))  # the others wait meanwhile
        await asyncio.sleep(0)
        results = await asyncio.gather(
            *(work.batched(inverse, number) for number in (1, 0, 4)), return_exceptions=True
        )
        await first
        return results

    sizes = []
    work.on_batch = sizes.append
    one, fault, quarter = asyncio.run(all_of_them())
    assert (one, quarter) == (1, 0.25)
    assert isinstance(fault, ZeroDivisionError)
    assert sizes == [3]


def test_a_request_that_comes_in_drops_is_ended():
    web = client(guard=Guard(upload_time=0.3))
    body = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'

    async def slow(scope, receive, send):
        parts = iter([body, b"x"])

        async def drops():
            part = next(parts, None)
            if part is None:
                await asyncio.sleep(5)
            return {"type": "http.request", "body": part or b"", "more_body": True}

        await web_app(scope, drops, send)

    web_app, web.app = web.app, slow
    answer = TestClient(slow, base_url=HOST).post(
        "/api/images", headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert answer.status_code == 408
    assert "0.3 s" in answer.json()["error"]


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


def test_damaged_uploads_are_refused_in_one_line_and_the_server_lives():
    web, files = client(), seeds()
    answers = []
    for case in range(120):
        _, data = case_bytes(files, 7, case)
        answer = send(web, bytes(data))
        answers.append(answer.status_code)
        if answer.status_code != 201:
            assert answer.status_code == 422, case
            assert "\n" not in answer.json()["error"]
    assert answers.count(422) > 30
    assert web.get("/health").json()["status"] == "ok"
