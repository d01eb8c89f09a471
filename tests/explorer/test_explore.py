"""The command as a person uses it: a server, a browser, a photograph."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from tests.explorer.browser import needs_browser, open_page
from tests.explorer.test_payload import network, picture

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'scaseg[explorer]'")


DROP = """([bytes, name, kind]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(bytes)], name, {type: "image/png"}));
  const event = kind === "drop" ? new DragEvent(kind, {dataTransfer: data, bubbles: true})
    : new ClipboardEvent(kind, {clipboardData: data, bubbles: true});
  document.body.dispatchEvent(event);
}"""
BLUE = """() => {
  const canvas = document.querySelectorAll("canvas.map")[1];
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((_, at) => at % 4 === 0 && data[at] === 86 && data[at + 2] === 233).length;
}"""


@contextmanager
def running(*arguments, told=lambda: None):
    """The server's address; ended by Ctrl-C, which must end it cleanly. told: called right then."""
    command = [sys.executable, "-m", "scaseg.cli", "explore", "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [*command, "--quiet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    try:
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        told()
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    for name in ("x.png", "y.png", "z.png"):
        Image.fromarray(picture()).save(folder / name)
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
    for context in ("sca", "none"):
        network(context).save_pretrained(folder / context)
    return folder


@needs_browser
def test_a_photograph_is_dropped_pinned_and_occluded(folder):
    models = ["--model", str(folder / "none"), str(folder / "sca")]
    with running(*models) as address, open_page(address) as page:
        assert page.locator("#images button").count() == 2  # the examples
        page.evaluate(DROP, [list((folder / "x.png").read_bytes()), "x.png", "drop"])
        page.wait_for_selector('body[data-image="x.png"]')
        assert page.locator(".surface").count() == 2
        page.locator(".surface").nth(1).click(position={"x": 80, "y": 80})
        assert page.locator("#pins > li").count() == 1
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.locator(".surface").nth(1).hover(position={"x": 120, "y": 60})
        page.locator(".surface").nth(1).hover(position={"x": 90, "y": 90})
        assert not asked  # nothing is fetched while the pointer moves
        page.locator("h1").hover()
        page.locator("#part").fill("50")
        page.wait_for_selector("#after li")
        assert "→" in page.locator("#after").inner_text()
        assert page.evaluate(BLUE) > 0  # what was taken away
        page.evaluate(DROP, [list((folder / "y.png").read_bytes()), "y.png", "paste"])
        page.wait_for_selector('body[data-image="y.png"]')
        page.set_input_files("#file", folder / "z.png")
        page.wait_for_selector('body[data-image="z.png"]')
        page.locator("#images button").nth(2).click()
        page.wait_for_selector('body[data-image="x.png"]')
        page.reload()  # the address holds which picture it was
        page.wait_for_selector('body[data-image="x.png"]')
        assert page.locator("#images button").count() == 5
        with page.expect_download() as download:
            page.click("#keep-page")
        kept = folder / "kept.html"
        kept.write_bytes(Path(download.value.path()).read_bytes())
        assert not page.problems
        page.evaluate("location.hash += '&pins=3,3'")  # and a picture that does not come
        busy = json.dumps({"error": "busy"})
        page.route("**/view", lambda route: route.fulfill(status=503, body=busy))
        page.reload()
        page.wait_for_selector("#problem:not(:empty)")
        page.locator("#opacity").fill("30")
        page.problems[:] = [one for one in page.problems if "503" not in one]
        page.unroute("**/view")
        page.reload()
        page.wait_for_selector("#pins > li")
        page.set_input_files("#file", folder / "bad.png")
        page.wait_for_selector("#problem:not(:empty)")
        assert "\n" not in page.locator("#problem").inner_text()
        page.problems[:] = [one for one in page.problems if "422" not in one]
    with open_page(kept.as_uri()) as page:  # without the server
        assert page.locator(".surface").count() == 2
        page.locator(".surface").nth(1).hover(position={"x": 80, "y": 80})
        assert page.locator("#sources li").count() > 0


def test_ctrl_c_ends_it_at_once_while_a_network_computes(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=0)

    def upload(address):
        files = {"image": ("x", buffer.getvalue())}
        return httpx2.post(f"{address}api/images", files=files, timeout=240).status_code

    uploads, before = [], []

    def answered():
        done = [one for one in uploads if one.done() and one.exception() is None]
        return [one.result() for one in done].count(201)

    def pending(address):
        return httpx2.get(f"{address}health", timeout=240).json()["pending"]

    told = running(told=lambda: before.append(answered()))
    with ThreadPoolExecutor(12) as threads, told as address:
        uploads += [threads.submit(upload, address) for _ in range(12)]
        # what a busy machine has answered before the last one came is pending no more
        while answered() + pending(address) < 8:
            time.sleep(0.05)
    # the server has gone long before it could have segmented all
    assert answered() - before[0] < 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--host: 0.0.0.0 can be reached from other machines"),
        (["--host", "somewhere"], "--host: somewhere; give an address"),
        (["--port", "70000"], "--port: '70000'"),
        (["--overwrite"], "--overwrite: came without --export"),
        (["--export", "page.html"], "IMAGES: none"),
        (["x.png", "--export", "page.html", "--token", "a"], "--token: came with --export"),
        (["x.png", "--export", "page.html", "--port", "0"], "--port: came with --export"),
        (["nothing.jpg"], "nothing.jpg"),
        (["--model", "sca", "sca"], "--model: sca comes twice"),
    ],
)
def test_bad_input_is_one_line(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        main(["explore", *arguments])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
