"""The example page in a real browser. onnxruntime-web is 14 MB: ORT_WEB names its dist folder."""

import functools
import os
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import scaseg
from tests.docs.pages import ROOT
from tests.explorer.browser import ARGUMENTS, CHROMIUM, PATIENCE, needs_browser, playwright
from tests.export.models import small_model

ORT_WEB = os.environ.get("ORT_WEB")


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {".mjs": "text/javascript", ".wasm": "application/wasm", "": "text/html"}

    def log_message(self, *arguments):
        pass


@needs_browser
@pytest.mark.skipif(ORT_WEB is None, reason="needs ORT_WEB, the folder dist of onnxruntime-web")
def test_the_page_segments_a_photograph(tmp_path):
    model = small_model("none")
    shutil.copy(ROOT / "examples" / "browser.html", tmp_path)
    (tmp_path / "ort").symlink_to(Path(ORT_WEB).absolute())
    scaseg.export_model(model, tmp_path / "outdoor.onnx", labels=True)
    image = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    Image.fromarray(image).resize((160, 120), 2).save(tmp_path / "photo.png")
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with playwright.sync_playwright() as started:
        options = {"executable_path": CHROMIUM, "args": ARGUMENTS, "timeout": PATIENCE}
        browser = started.chromium.launch(**options)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://127.0.0.1:{server.server_port}/browser.html")
        page.wait_for_function("document.querySelector('#said').textContent == 'ready'")
        page.set_input_files("input", tmp_path / "photo.png")
        page.wait_for_selector("li")
        shown = page.inner_text("ul").splitlines()
        browser.close()
    server.shutdown()
    server.server_close()
    areas = model.predict(tmp_path / "photo.png").areas()
    for (name, share), line in zip(areas.items(), shown, strict=True):
        assert line.startswith(f"{name} ")
        assert int(line.split()[1]) == pytest.approx(100 * share, abs=1)
