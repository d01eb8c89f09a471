"""Tables at a terminal: nothing is lost, no line is too long, a pipe gets the Markdown."""

import re

import pytest
from rich.cells import cell_len

from scaseg.cli.tables import fit_terminal, print_markdown
from scaseg.comparison.tables import markdown_table

HEAD = ["context", "rank correlation of two maps", "mIoU", "p"]
ROWS = [["sca:hidden=128", "0.9", "48.3 ± 0.2", "< 0.001"], ["none", "n/a", "47", "0.5"]]
TEXT = markdown_table(HEAD, ROWS, "Differences paired by seed, with 95 % confidence intervals.")


@pytest.mark.parametrize("width", [28, 30, 45, 60, 200])
def test_no_line_is_too_long_and_nothing_is_lost(width):
    found = fit_terminal(TEXT, width)
    assert max(map(len, found.splitlines())) <= width
    for word in re.findall(r"[^|\s]+", TEXT.replace("---", "")):
        assert word in found


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_long_names_of_variants_are_broken_between_options(width):
    name = "sca:activation=exp:pair_channels=64:backend=linear"
    text = markdown_table(HEAD, [[name, *ROWS[0][1:]], ["ctx:注意機構", *ROWS[1][1:]]])
    found = fit_terminal(text, width)
    assert max(map(cell_len, found.splitlines())) <= width
    for part in re.findall(r"[^:]+:?", name):
        assert part in found
    assert found.count("context") <= {40: 3, 60: 1, 80: 1, 200: 1}[width]  # tables
    starts = {cell_len(line[: line.index("48.3")]) for line in found.splitlines() if "48.3" in line}
    starts |= {cell_len(line[: line.index("47")]) for line in found.splitlines() if "47" in line}
    assert len(starts) == 1


def test_columns_that_fit_stand_side_by_side():
    assert fit_terminal(TEXT, 60).splitlines()[:4] == [
        "context         rank         mIoU        p",
        "                correlation",
        "                of two maps",
        "sca:hidden=128  0.9          48.3 ± 0.2  < 0.001",
    ]


@pytest.mark.parametrize("text", ["", "| a |\n|---|\n| b |\n", "words\n\n| a | b |\n|---|---|\n"])
def test_odd_texts(text):
    assert set(text) - set("|- \n") <= set(fit_terminal(text, 1))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_pipe_gets_the_markdown_as_it_is(monkeypatch, capsys, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_markdown(TEXT)
    assert (capsys.readouterr().out == TEXT) is not terminal
