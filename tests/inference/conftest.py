"""A model and photographs to predict."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

import scaseg
from tests.inference.command import CLASSES
from tests.inference.models import picture


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    made = scaseg.create_model("tiny", head="pointwise", classes=CLASSES, hidden=4)
    made.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def photos(tmp_path):
    """Three photographs, two of them in folders."""
    for place, name in enumerate(("one.jpg", "a/two.png", "a/b/three.JPG")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(30 + place, 41, seed=place)).save(path)
    (tmp_path / "photos" / "notes.txt").write_text("not a photograph")
    return tmp_path / "photos"


@pytest.fixture
def serve():
    """Serve a folder by HTTP: gives its address, and the list of requests that come."""
    servers = []

    def start(folder):
        requests = []

        class Quiet(SimpleHTTPRequestHandler):
            def log_message(self, *_):
                requests.append(f"{self.command} {self.path}")

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}", requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
