"""What strangers send: damaged and hostile pictures, lengths that lie, other hosts, no token."""

import asyncio
import io
import time

import numpy as np
import pytest
from PIL import Image

from tests.data.decode.test_hostile_images import BOMBS
from tests.explorer.test_payload import picture
from tests.faults.fuzz_images import case_bytes
from tests.faults.image_seeds import seeds

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'scaseg[explorer]'")
from starlette.requests import Request
from starlette.testclient import TestClient

from scaseg.explorer.guard import Guard
from scaseg.explorer.pictures import Picture, Pictures
from scaseg.version import __version__
from tests.explorer.test_server import HOST, application, client, png, send


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


def test_a_request_of_another_page_that_names_no_host_is_refused():
    """HTTP/1.0 asks for none."""
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "scheme": "http"}
    scope |= {"server": ("127.0.0.1", 80), "headers": [(b"origin", b"http://evil.example")]}
    assert Guard().refusal(Request(scope))[0] == 403


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


def test_more_requests_than_it_serves_at_once_are_told_to_come_again():
    web = client(guard=Guard(most_active=0))
    answer = web.get("/api/images")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert web.get("/health").status_code == 200


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
