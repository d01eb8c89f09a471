"""Links lead somewhere, commands exist, Python runs: in README and in docs/."""

import re
import subprocess

import pytest
from PIL import Image

from scaseg.cli import build_parser
from scaseg.cli.settings import check_keys, split_keys
from scaseg.errors import UserError
from tests.docs.pages import (
    JOBS,
    PAGES,
    ROOT,
    WRITTEN,
    command_lines,
    named,
    python_blocks,
    script_commands,
    without_code,
)

MADE = re.compile(r"api/\w+\.md")  # by docs/site, from the code


def anchors(page):
    """The places of a page, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    slugs = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", slug) for slug in slugs}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"https?:|mailto:", target) or MADE.fullmatch(target):
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else page.parent / path
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), target


def refused(arguments):
    """The command line's error for these arguments; None: it takes them."""
    try:
        rest, keys = split_keys(arguments)
        options = build_parser().parse_args(rest)
        check_keys(keys, getattr(options, "reads_keys", ()))
    except SystemExit as stop:  # --help, --version
        return stop.code or None
    except UserError as error:
        # prose that names a command leaves out what the command needs
        named_only = len(arguments) <= 2 and "arguments are required" in error.problem
        return None if named_only else str(error)
    return None


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_commands_are_understood(page):
    for command in command_lines(page.read_text(encoding="utf-8")):
        if "…" not in " ".join(command):
            assert refused(command[1:]) is None, command


def test_commands_are_found():
    found = [command for page in WRITTEN for command in command_lines(page.read_text("utf-8"))]
    assert len(found) > 20
    assert ["scaseg", "data", "list"] in found


@pytest.mark.parametrize("job", sorted(JOBS.glob("*.sh")), ids=named)
def test_jobs_for_a_gpu_are_understood(job):
    """Where they run, a mistake costs minutes of a machine that is hard to get."""
    subprocess.run(["bash", "-n", job], check=True)
    commands = list(script_commands(job.read_text(encoding="utf-8")))
    assert len(commands) > 0 or job.name in ("common.sh", "verify.sh", "peers.sh", "largest.sh")
    for command in commands:
        assert refused(command[1:]) is None, command
    assert f"`{job.name}`" in (JOBS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make (\w[\w-]*)", page.read_text("utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


with_python = [page for page in WRITTEN[1:] if python_blocks(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", with_python, ids=named)  # README has a test of its own
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 48)).save("photo.jpg")  # what pages call a reader's own
    names = {}
    for block in python_blocks(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), names)
