import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.config.recipe import load_recipe
from scaseg.losses import class_weights
from scaseg.progress import progress_bar
from tests.data.validation.spoilt import label_map
from tests.data.validation.spoilt import root as root  # a clean data set
from tests.shared import SHARED, needs


def data(*arguments):
    main(["data", *map(str, arguments)])


def exit_code(*arguments):
    with pytest.raises(SystemExit) as stop:
        data(*arguments)
    return stop.value.code


def test_describing_the_commands_imports_nothing_heavy():
    script = "import sys, scaseg.cli.data, scaseg.progress\n"
    script += "heavy = {'torch', 'numpy', 'yaml', 'rich', 'PIL'} & set(sys.modules)\n"
    script += "assert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_list_names_each_data_set_with_its_form(capsys, monkeypatch):
    from scaseg.registry import DATASETS

    monkeypatch.setenv("COLUMNS", "60")
    data("list")
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 60
    data("list", "--json")
    forms = json.loads(capsys.readouterr().out)
    assert list(forms) == list(DATASETS)
    for name, form in forms.items():
        assert f"\n{name} " in "\n" + printed
        assert len(form) > 20


def test_a_clean_data_set(root, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    data("check", root)
    printed = capsys.readouterr()
    assert printed.out.endswith("No problems found.\n")
    assert printed.err == ""
    chart = printed.out[printed.out.index("class ") :]
    assert max(map(len, chart.splitlines())) == 60
    data("check", root, "--quiet")
    assert capsys.readouterr().out == ""


def test_warnings_alone_are_no_failure(root, capsys):
    (root / "classes.txt").unlink()
    data("check", root, "--quiet")
    assert capsys.readouterr().out.startswith("warning:")
    data("check", root, "--classes", "sky,tree, road", "--quiet")
    assert capsys.readouterr().out == ""


def test_all_problems_and_exit_code_1(root, capsys):
    for name in "abcxy":
        Image.new("RGB", (24, 16)).save(root / "labels" / f"{name}.png")
    (root / "images" / "a.jpg").write_bytes(b"torn")
    assert exit_code("check", root, "--name", "folder") == 1
    printed = capsys.readouterr()
    assert "error, 5 times: a RGB label map" in printed.out
    assert "images/a.jpg: not an image" in printed.out
    assert printed.err == ""
    assert exit_code("check", root, "--json", "--name", "folder") == 1
    report = json.loads(capsys.readouterr().out)
    assert {len(kind["places"]) for kind in report["errors"]} == {1, 5}
    assert report["splits"] == {"train": 3, "test": 2}
    assert report["weights"] is None


@pytest.mark.parametrize("text", ["{255: 1}", '{"255": 1}', "255: 1"])
def test_values_are_renamed(root, text, capsys):
    for name in "abcxy":
        label_map(root / "labels" / f"{name}.png", [0, 255])
    assert exit_code("check", root) == 1
    assert "--data.label_map '{255: 1}'" in capsys.readouterr().out.replace("\n  ", " ")
    data("check", root, "--label-map", text, "--json", "--workers", "1")
    report = json.loads(capsys.readouterr().out)
    assert report["pixels"] == [576, 576, 0]
    data("check", root, "--data.label_map", text, "--json")  # as the advice says it
    assert json.loads(capsys.readouterr().out)["pixels"] == [576, 576, 0]
    assert exit_code("check", root, "--training.lr", "1") == 2
    assert "--training.lr: has no effect in this command" in capsys.readouterr().err
    data("check", root, "--label-map", "{255: 2, 0: 1}", "--reduce-zero-label", "--json")
    assert json.loads(capsys.readouterr().out)["pixels"] == [576, 576, 0]


def test_a_terminal_without_blocks_gets_ascii(root):
    (root / "classes.txt").write_text("ciel étoilé\narbre\nroute\n", encoding="utf-8")
    script = "import sys; from tests.cli.test_data import data; data('check', sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        env={
            "PYTHONIOENCODING": "ascii",
            "COLUMNS": "60",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    assert done.returncode == 0, done.stderr
    assert b"###" in done.stdout
    assert b"ciel \\xe9toil\\xe9" in done.stdout


def test_prepare_writes_a_folder_that_passes_the_check(root, tmp_path_factory, capsys):
    out = tmp_path_factory.mktemp("prepared") / "out"
    data("prepare", "folder", root, out)
    assert capsys.readouterr().out == f"{out}: train 3, test 2; 5 pairs written, 0 were there\n"
    data("prepare", "folder", root, out, "--quiet")
    data("check", out, "--quiet")
    assert capsys.readouterr().out == ""


def test_prepare_tells_all_faults_of_single_files(root, tmp_path_factory, capsys):
    for name in "ax":
        (root / "labels" / f"{name}.png").write_bytes(b"torn")
    out = tmp_path_factory.mktemp("prepared") / "out"
    assert exit_code("prepare", "folder", root, out) == 1
    printed = capsys.readouterr()
    assert [line.split(": ")[0][-5:] for line in printed.out.splitlines()] == ["a.png", "x.png"]
    assert printed.err.startswith(f"error: {root}: 2 problems; ")
    assert printed.err.count("\n") == 1


def test_progress_is_for_terminals(capsys, monkeypatch):
    with progress_bar("reading", 2) as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for shown in (False, True):
        with progress_bar("reading", 2, shown=shown) as progress:
            progress(1, 2)
        printed = capsys.readouterr()
        assert ("reading" in printed.err) == shown
        assert printed.out == ""


@needs(SHARED / "data" / "stanford_background")
def test_real_data(capsys):
    data("check", SHARED / "data" / "stanford_background", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["errors"] == []
    assert report["splits"] == {"train": 572, "test": 143}
    assert report["weights"] == [1, 1, 1, 2, 2, 1, 4, 1]
    [twins] = report["warnings"]  # the data set has three photographs twice, labelled anew
    assert twins["places"][0] == {"place": "images/6000318.jpg", "detail": "6000068.jpg"}


@pytest.mark.parametrize(
    ("recipe", "weights", "said"),
    [
        ("own_folder", (1, 1, 16), "the paper's, clamped to 1 to 16, as in the recipe own_folder"),
        ("sift_flow", (1, 1, 32), "the paper's, as in the recipe sift_flow"),
        ("outdoor_backbone", (1, 1, 1), "all the same, as in the recipe outdoor_backbone"),
    ],
)
def test_the_weights_shown_are_those_of_training(tmp_path, capsys, recipe, weights, said):
    labels = np.zeros((400, 400), np.uint8)
    labels[:200], labels[0, :4] = 1, 2
    for name, pixels in (("images", np.stack([labels] * 3, -1)), ("labels", labels)):
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "a.png")
    given = [] if recipe == "own_folder" else ["--recipe", recipe]
    data("check", tmp_path, "--json", *given)
    shown = json.loads(capsys.readouterr().out)
    training = load_recipe(recipe).training
    used = class_weights(training.class_weights, shown["pixels"], training.class_weight_range)
    assert tuple(shown["weights"]) == (used or (1, 1, 1)) == weights
    assert shown["weighting"] == said
    data("check", tmp_path, *given)
    assert f"Weights: {said}." in " ".join(capsys.readouterr().out.split())
