"""scaseg recipes: list, show and copy what comes with the package."""

import pytest

from scaseg.cli import main
from scaseg.config.recipe import load_recipe, recipe_names


@pytest.mark.parametrize("columns", [40, 80])
def test_all_are_listed_and_fit_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == recipe_names()
    assert max(map(len, lines)) <= columns
    assert lines[lines.index("own_folder") + 1].startswith("    Photographs and label maps")


def test_a_copy_is_the_recipe(tmp_path, capsys):
    main(["recipes", "own_folder"])
    shown = capsys.readouterr().out
    main(["recipes", "own_folder", "--copy", str(tmp_path / "mine.yaml")])
    assert (tmp_path / "mine.yaml").read_text() == shown
    assert load_recipe(tmp_path / "mine.yaml") == load_recipe("own_folder")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_foldr"], "NAME: 'own_foldr'; did you mean own_folder? give one of atlantis"),
        (["--copy", "x.yaml"], "--copy: no recipe named; give NAME --copy FILE"),
        (["own_folder", "--copy", "there"], "--copy: there is there already; give a new file"),
        (["own_folder", "--copy", "no/x"], "--copy: no/x: cannot be written (No such file"),
    ],
)
def test_what_is_refused(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["recipes", *arguments])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "mine"
