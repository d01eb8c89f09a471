"""The command as a person uses it: a server, a browser, a photograph."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from scaseg.cli import main
from tests.explorer.browser import needs_browser, open_page
from tests.explorer.test_payload import network, picture

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'scaseg[explorer]'")


@contextmanager
def running(*arguments):
    """The server's address; ended by Ctrl-C, which must end it cleanly."""
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
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    Image.fromarray(picture()).save(folder / "x.png")
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
    for context in ("sca", "none"):
        network(context).save_pretrained(folder / context)
    return folder


@needs_browser
def test_a_photograph_is_dropped_pinned_and_occluded(folder):
    models = ["--model", str(folder / "none"), str(folder / "sca")]
    with running(*models) as address, open_page(address) as page:
        assert page.locator("#images button").count() == 2  # the examples
        page.set_input_files("#file", folder / "x.png")
        page.wait_for_selector('body[data-image="x.png"]')
        assert page.locator(".surface").count() == 2
        page.locator(".surface").nth(1).click(position={"x": 80, "y": 80})
        assert page.locator("#pins > li").count() == 1
        page.locator("#part").fill("50")
        page.wait_for_selector("#after li")
        assert "→" in page.locator("#after").inner_text()
        page.check("#disagree")
        with page.expect_download() as download:
            page.click("#keep-page")
        kept = folder / "kept.html"
        kept.write_bytes(Path(download.value.path()).read_bytes())
        page.set_input_files("#file", folder / "bad.png")
        page.wait_for_selector("#problem:not(:empty)")
        assert "\n" not in page.locator("#problem").inner_text()
        expected = ["the server answered 422", "Failed to load resource"]
        page.problems[:] = [p for p in page.problems if not any(one in p for one in expected)]
    with open_page(kept.as_uri()) as page:  # without the server
        assert page.locator(".surface").count() == 2
        page.locator(".surface").nth(1).hover(position={"x": 80, "y": 80})
        assert page.locator("#sources li").count() > 0


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
