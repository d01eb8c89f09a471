"""No colours where nobody sees them: pipes, NO_COLOR, terminals that cannot."""

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.cli.parsers import COMMANDS, named
from tests.data.validation.spoilt import root as root  # a clean data set

ESCAPE = "\x1b"
COLOR = re.compile(r"\x1b\[[\d;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[\d;]*m")


def on_a_terminal(arguments, **environment):
    """Run scaseg with stdout and stderr on a terminal, and give what it showed there."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "scaseg.cli", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        env={"PATH": os.environ["PATH"], "COLUMNS": "80", "TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so at the end
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert done.wait() in (0, 2)
    return shown.decode()


def test_a_progress_bar_has_colours(root):  # or the others would prove nothing
    assert COLOR.search(on_a_terminal(["data", "check", root]))


def test_no_color_is_respected(root):
    shown = on_a_terminal(["data", "check", root], NO_COLOR="1")
    assert "reading" in shown
    assert not COLOR.search(shown)


def test_a_dumb_terminal_gets_plain_text(root):
    shown = on_a_terminal(["data", "check", root], TERM="dumb")
    assert "No problems found." in shown
    assert ESCAPE not in shown


def test_a_pipe_gets_plain_text(root):
    done = subprocess.run(
        [sys.executable, "-m", "scaseg.cli", "data", "check", str(root)],
        capture_output=True,
        text=True,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    assert "No problems found." in done.stdout
    assert ESCAPE not in done.stdout + done.stderr


@pytest.mark.parametrize("words", [(), ("train",)], ids=named)
def test_help_is_plain_on_every_python(words):
    assert words in COMMANDS
    shown = on_a_terminal([*words, "--help"], FORCE_COLOR="1")  # 3.14 would colour it
    assert "example: scaseg " in shown
    assert ESCAPE not in shown


def test_errors_are_plain():
    shown = on_a_terminal(["trian"], FORCE_COLOR="1")
    assert shown == "error: unknown command 'trian'; did you mean train?\r\n"
