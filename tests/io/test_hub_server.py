"""Models to the hub and back, by HTTP, in a process of its own.

One process does everything, and writes what it found as JSON: starting it takes longest.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

import scaseg
from scaseg.io import hub as scaseg_hub
from scaseg.models.card import model_card
from tests.io.hub_server import Hub

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from dataclasses import replace
import huggingface_hub, numpy, scaseg
from scaseg.cli import main

model = scaseg.create_model("tiny", "sca", "pointwise", classes=["sky", "road"], hidden=4).eval()
classes = {"sky": {"accuracy": 90.0, "IoU": 80.2}, "road": {"accuracy": None, "IoU": None}}
judged = {"epoch": 3, "PPA": 88.1, "CAA": 80.0, "mIoU": "71.5", "per_class": classes}
recipe = {"data": {"root": "/home/someone/secret/photos"}, "training": {"epochs": 7}}
record = {"recipe": recipe, "validation": judged}
model.config = replace(model.config, temperature=1.5, training=record)
own = model.config
facts = {"commit": model.push_to_hub("me/mine", license="apache-2.0", commit_message="first")}
facts["unchanged"] = model.config is own
again = scaseg.Segmenter.from_pretrained("me/mine")
image = numpy.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype="uint8")
found, expected = (one.predict(image, scores=True).scores for one in (again, model))
facts["same"] = bool((found == expected).all())
facts["root"] = again.config.training["recipe"]["data"]["root"]
import PIL.Image
PIL.Image.fromarray(image).save("photo.png")
main("predict photo.png --model hf:me/mine --out out --quiet --device cpu".split())
for name, call in {
    "unknown": lambda: scaseg.load_model("me/nothing"),
    "refused": lambda: model.push_to_hub("me/other", token=False),
}.items():
    try:
        call()
    except scaseg.UserError as error:
        facts[name] = str(error)
huggingface_hub.constants.HF_HUB_OFFLINE = True
facts["offline"] = scaseg.load_model("me/mine").classes
for name, call in {
    "offline unknown": lambda: scaseg.load_model("me/nothing"),
    "offline push": lambda: model.push_to_hub("me/mine"),
}.items():
    try:
        call()
    except scaseg.UserError as error:
        facts[name] = str(error)
json.dump(facts, open("facts.json", "w"))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with Hub() as hub:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(folder / "home"),
            "HF_TOKEN": "hf_token",
            "HF_HUB_DISABLE_XET": "1",  # its store has a protocol of its own
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_ETAG_TIMEOUT": "240",
            "HF_HUB_DOWNLOAD_TIMEOUT": "240",
        }
        for name in ("HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "HF_HUB_CACHE"):
            environment.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        yield hub, json.loads((folder / "facts.json").read_text()), folder


def test_there_and_back(session):
    hub, facts, folder = session
    assert set(hub.files["me/mine"]) == {"README.md", "config.json", "model.safetensors"}
    assert facts["commit"].startswith(f"{hub.address}/me/mine/commit/")
    assert facts["same"]
    assert facts["unchanged"]
    assert (folder / "out" / "photo.png").is_file()


def test_no_path_of_this_machine_is_uploaded(session):
    hub, facts, _ = session
    assert facts["root"] == "photos"
    for name in ("README.md", "config.json"):
        assert b"secret" not in hub.files["me/mine"][name]


def test_the_card_says_what_the_record_says(session):
    card = session[0].files["me/mine"]["README.md"].decode()
    _, front, body = card.split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["license"] == "apache-2.0"
    assert facts["library_name"] == "scaseg"
    [result] = facts["model-index"][0]["results"]
    assert result["metrics"][0] == {"type": "mean_iou", "name": "mIoU", "value": 71.5}
    for said in (
        "Data: photos.",
        "| `training.epochs` | `7` |",
        "PPA/aAcc 88.1, CAA/mAcc 80.0, mIoU 71.5",
        "| sky | 90.0 | 80.2 |",
        "| road | n/a | n/a |",
        "temperature 1.50",
        "## Intended use and limits",
        'scaseg.load_model("me/mine")',
    ):
        assert said in body, said


def test_a_model_without_a_record_says_so():
    model = scaseg.create_model("tiny", "none", "pointwise", classes=["sky", "road"])
    card = model_card(model, "me/mine")
    assert "None are recorded" in card
    assert "does not say on which data" in card
    assert "license" not in card


def test_what_the_hub_has_not_and_what_it_refuses(session):
    _, facts, _ = session
    assert facts["unknown"].startswith("me/nothing: not here, and cannot be downloaded")
    assert facts["refused"].startswith("me/other: cannot be uploaded")
    assert "log in with `hf auth login`" in facts["refused"]


def test_offline_nothing_is_asked(session):
    _, facts, _ = session
    assert facts["offline"] == ["sky", "road"]  # from the cache
    assert (
        "me/nothing: not in the hub's cache, and HF_HUB_OFFLINE is set" in facts["offline unknown"]
    )
    assert facts["offline push"] == (
        "me/mine: cannot be uploaded, HF_HUB_OFFLINE is set; unset HF_HUB_OFFLINE"
    )


def test_a_wait_is_announced(monkeypatch, capsys):
    """A name that is looked up for long: a word after the first seconds, and the end soon after."""
    monkeypatch.setattr(scaseg_hub, "PATIENCE", 0.05)
    over = threading.Event()
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def look_up(*args, **options):
        over.wait(240)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "create_connection", look_up)
    said = ""
    with scaseg_hub.reaching("model.safetensors of me/mine"):
        with pytest.raises(TimeoutError):
            scaseg_hub.probe("https://hub.example")
        while not said.endswith("\n"):  # the timer's own thread says it
            said += capsys.readouterr().err
    over.set()
    assert said == "waiting for the Hugging Face hub: model.safetensors of me/mine\n"
