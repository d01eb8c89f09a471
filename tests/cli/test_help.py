"""Every help text ends with an example that works, and fits the terminal."""

import re
import shlex

import pytest

from scaseg.cli import build_parser, main
from scaseg.cli.parser import format_command
from scaseg.cli.settings import check_keys, split_keys
from tests.cli.parsers import COMMANDS, all_parsers, named


def help_of(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_no_command_is_forgotten():
    assert {("train",), ("evaluate",), ("data", "check"), ("bench",)} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=named)
@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits_the_terminal(words, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = help_of(words, capsys).splitlines()
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize("words", COMMANDS, ids=named)
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_example_can_be_pasted(words, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = re.search(r"^example: ((?:.*\\\n)*.+)", help_of(words, capsys), re.MULTILINE)
    assert found is not None
    program, *arguments = shlex.split(found[1].replace("\\\n", " "))
    assert program == "scaseg"
    assert tuple(arguments[: len(words)]) == words
    rest, keys = split_keys(arguments)
    options = build_parser().parse_args(rest)  # raises, where it does not fit
    check_keys(keys, getattr(options, "reads_keys", ()))


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_every_option_has_help(words):
    parser = dict(all_parsers())[words]
    without = [action.dest for action in parser._actions if not action.help]
    assert without == (["==SUPPRESS=="] if parser.commands() else [])


def test_a_long_example_breaks_where_a_shell_goes_on():
    example = "scaseg data check masks --label-map '{255: 1}' --classes sky,tree --quiet"
    shown = format_command(f"example: {example}", 40)
    assert shown == (
        "example: scaseg data check masks \\\n"
        "    --label-map '{255: 1}' \\\n"
        "    --classes sky,tree --quiet"
    )
    assert shlex.split(shown.replace("\\\n", ""))[1:] == shlex.split(example)
