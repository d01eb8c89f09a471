"""One limit of pixels, under one name, in every command that opens image files."""

import pytest

from scaseg.cli import main
from scaseg.cli.settings import KEYS
from scaseg.config.run import DataConfig
from scaseg.data.decode.files import MAX_PIXELS

COMMANDS = {
    "predict": ["a.jpg", "--model", "m", "--out", "o"],
    "explain": ["a.jpg", "--model", "m", "--out", "o.png"],
    "evaluate": ["--model", "m"],
    "train": ["--out", "o"],
    "compare": ["--out", "o"],
    "data check": ["folder"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_it(command, capsys):
    for value in ("0", "many", "-5", "1.5"):
        with pytest.raises(SystemExit) as stop:
            main([*command.split(), *COMMANDS[command], f"--max-pixels={value}"])
        assert stop.value.code == 2
        assert f"--max-pixels: '{value}'; give a whole number >= 1" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"refused before they are decoded ({MAX_PIXELS // 1_000_000} million)" in said


def test_a_recipe_has_it_too():
    assert KEYS["max_pixels"] == "data.max_pixels"
    assert DataConfig().max_pixels is None  # the usual limit, whatever it is
    assert DataConfig().check == "all"
