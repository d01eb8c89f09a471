"""The API as a service: stateless labels, metrics, readiness, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from tests.explorer.test_payload import network, picture
from tests.processes import free_port

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'scaseg[serve]'")
pytest.importorskip("prometheus_client", reason="it is not installed: pip install 'scaseg[serve]'")
from prometheus_client.parser import text_string_to_metric_families

from scaseg.explorer.guard import Guard
from scaseg.explorer.metrics import Metrics
from tests.explorer.test_server import application, client, png

FILES = {"image": ("x.png", png())}


def metric(web, name, **labels):
    text = web.get("/metrics").text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_labels_are_those_of_predict_and_nothing_is_kept():
    web = client(page=False, metrics=Metrics())
    answer = web.post("/api/labels", files=FILES)
    assert answer.status_code == 200
    found = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert np.array_equal(found, network("sca").predict(picture()).labels)
    second = web.post("/api/labels?model=second", files=FILES).content
    expected = network("none").predict(picture()).labels
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(second))), expected)
    assert web.post("/api/labels?model=third", files=FILES).status_code == 422
    assert web.post("/api/labels", files={"image": b"no picture"}).status_code == 422
    assert len(web.get("/api/images").json()) == 1  # the shared one
    assert [one["name"] for one in web.get("/api/models").json()] == ["first", "second"]
    assert web.get("/").status_code == 404
    assert web.get("/static/app.js").status_code == 404


def test_large_images_are_not_made_smaller_but_have_a_limit(monkeypatch):
    monkeypatch.setattr("scaseg.explorer.payload.MOST_SIDE", 64)
    web = client(page=False, guard=Guard(most_pixels=90 * 61))
    assert Image.open(io.BytesIO(web.post("/api/labels", files=FILES).content)).size == (90, 61)
    large = {"image": ("x.png", png(picture(62, 90)))}
    assert web.post("/api/labels", files=large).status_code == 422


def test_metrics_count_answers_by_route_and_never_what_a_client_typed():
    web = client(page=False, metrics=Metrics(), workers=2)
    for _ in range(3):
        web.post("/api/labels", files=FILES)
    web.post("/api/labels", files={"image": b"no"})
    for path in ("/secret/name", "/api/images/secret"):
        assert web.get(path).status_code == 404
    total = "scaseg_requests_total"
    assert metric(web, total, route="/api/labels", status="200") == 3
    assert metric(web, total, route="/api/labels", status="422") == 1
    assert metric(web, total, status="404") == 2
    assert "secret" not in web.get("/metrics").text
    assert metric(web, "scaseg_request_seconds_count", route="/api/labels") == 4
    assert metric(web, "scaseg_batch_size_sum") == 3
    assert metric(web, "scaseg_pending") == 0
    assert metric(web, "process_resident_memory_bytes") > 1e7


def test_a_token_guards_the_metrics_but_not_readiness():
    web = client(application(page=False, metrics=Metrics(), guard=Guard("0.0.0.0", "secret")))
    assert web.get("/metrics").status_code == 401
    assert web.get("/ready").status_code == web.get("/health").status_code == 200
    bearer = {"authorization": "Bearer secret"}
    assert web.get("/metrics", headers=bearer).status_code == 200


@contextmanager
def serving(folder, *arguments, port=0):
    command = [sys.executable, "-m", "scaseg.cli", "serve", "--model", str(folder)]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--quiet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def patient(address):
    """A client that waits for a busy machine, with a connection for each request."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.Client(base_url=address, timeout=240, limits=limits)


def test_sigterm_lets_what_was_taken_be_answered(tmp_path):
    network("sca").save_pretrained(tmp_path / "m")
    large = {"image": ("x.png", png(picture(900, 900), compress_level=0))}
    more = ("--workers", "1", "--grace", "600")
    with serving(tmp_path / "m", *more) as (process, address), patient(address) as web:

        def ask(_):
            return web.post("api/labels", files=large).status_code

        def taken():
            answered = sum(one.done() for one in asked)  # first: what is counted twice comes late
            return answered + web.get("health").json()["pending"]

        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(ask, number) for number in range(8)]
            while taken() < 8:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert [one.result() for one in asked] == [200] * 8
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0
        assert errors == ""


def test_while_it_drains_it_is_alive_but_not_ready(tmp_path):
    network("sca").save_pretrained(tmp_path / "m")
    drained = serving(tmp_path / "m", "--drain", "900")
    with drained as (process, address), patient(address) as web:
        assert web.get("ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        while web.get("ready").status_code == 200:
            time.sleep(0.02)
        assert web.get("ready").headers["retry-after"]
        assert web.get("health").status_code == 200
        assert web.post("api/labels", files=FILES).status_code == 200
        process.send_signal(signal.SIGTERM)  # a second one ends it at once
        _, errors = process.communicate(timeout=240)
        assert (process.returncode, errors) == (0, "")


def test_what_was_killed_starts_again_at_the_same_port(tmp_path):
    network("sca").save_pretrained(tmp_path / "m")
    port = free_port()
    with serving(tmp_path / "m", "--precision", "bf16", port=port) as (process, address):
        with patient(address) as web:
            assert web.post("api/labels", files=FILES).status_code == 200
            process.send_signal(signal.SIGKILL)
            process.wait()
        with serving(tmp_path / "m", port=port) as (_, again), patient(again) as web:
            assert again == address
            assert web.post("api/labels", files=FILES).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--host: 0.0.0.0 can be reached from other machines"),
        (["--workers", "0"], "--workers: '0'"),
        (["--drain", "-1"], "--drain: '-1'"),
        (["--model", "nowhere"], "--model: nowhere: no such folder"),
    ],
)
def test_bad_input_is_one_line(capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("SCASEG_TOKEN", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["serve", *arguments])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_its_extra_it_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SystemExit) as stop:
        main(["serve"])
    assert stop.value.code == 2
    assert "pip install 'scaseg[serve]'" in capsys.readouterr().err
