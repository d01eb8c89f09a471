"""The Dockerfile: read as a builder reads it; built and asked where Docker runs."""

import json
import re
import shlex
import shutil
import subprocess
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx2
import pytest

from scaseg.cli import build_parser
from tests.explorer.test_server import png

ROOT = Path(__file__).parents[2]
DOCKER = shutil.which("docker")


def instructions():
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]


def values(name):
    return [rest for kind, rest in instructions() if kind == name]


def test_stages_have_plain_names_and_the_last_one_is_no_root():
    names = [value.split()[0] for value in values("FROM")]
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", name) for name in names), names
    last = max(place for place, (kind, _) in enumerate(instructions()) if kind == "FROM")
    after = instructions()[last:]
    assert [rest for kind, rest in after if kind == "USER"] == ["10001:10001"]
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL"}
    assert {kind for kind, _ in instructions()} <= known | {"HEALTHCHECK", "ENTRYPOINT"}


def test_what_is_copied_is_there_and_sent_to_the_builder():
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    for value in values("COPY"):
        if value.startswith("--from"):
            continue
        for source in value.split()[:-1]:
            assert (ROOT / source).exists()
            assert sent.index("*") < sent.index(f"!{source}")
    assert not any(fnmatch("src/scaseg/cli/serve.py", one) for one in sent[1:])


def test_its_command_is_one_of_ours_and_its_ports_are_the_same():
    [entrypoint] = values("ENTRYPOINT")
    program, *arguments = json.loads(entrypoint)
    assert program == "scaseg"
    options = build_parser("serve").parse_args(arguments)
    assert values("EXPOSE") == [str(options.port)]
    assert f"127.0.0.1:{options.port}/health" in values("HEALTHCHECK")[0]
    assert values("STOPSIGNAL") == ["SIGTERM"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install = next(rest for rest in values("RUN") if "pip install" in rest)
    [package] = [part for part in shlex.split(install) if part.startswith(".[")]
    assert set(package[2:-1].split(",")) <= set(extras["optional-dependencies"])


def runs():
    return DOCKER and subprocess.run([DOCKER, "info"], capture_output=True).returncode == 0


@pytest.mark.timeout(3600)
def test_it_is_built_and_serves():
    if not runs():
        pytest.skip("no Docker daemon runs here")
    subprocess.run([DOCKER, "build", "-q", "-t", "scaseg-test", str(ROOT)], check=True)
    command = [DOCKER, "run", "-d", "--rm", "-p", "127.0.0.1::8000", "-e", "SCASEG_TOKEN=secret"]
    started = subprocess.run([*command, "scaseg-test"], check=True, capture_output=True, text=True)
    container = started.stdout.strip()
    try:
        shown = subprocess.run(
            [DOCKER, "port", container, "8000"], check=True, capture_output=True, text=True
        )
        address = f"http://{shown.stdout.split()[0]}"
        for _ in range(120):
            try:
                assert httpx2.get(f"{address}/ready").status_code == 200
                break
            except httpx2.HTTPError:
                time.sleep(0.5)
        bearer = {"authorization": "Bearer secret"}
        files = {"image": ("x.png", png())}
        assert httpx2.post(f"{address}/api/labels", files=files).status_code == 401
        answer = httpx2.post(f"{address}/api/labels", files=files, headers=bearer, timeout=60)
        assert answer.headers["content-type"] == "image/png"
    finally:
        subprocess.run([DOCKER, "stop", container], check=True, capture_output=True)
