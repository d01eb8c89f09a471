"""Which folder holds a model, and how soon a wrong one is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

import scaseg
from scaseg.io.model_folder import BUILTIN, CONFIG, WEIGHTS, find_model
from tests.inference.models import CLASSES


def write_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, WEIGHTS):
        (folder / name).touch()


@pytest.mark.parametrize("place", [".", "model", "checkpoints/best"])
def test_where_a_run_has_its_model(place, tmp_path):
    write_model(tmp_path / place)
    assert find_model(tmp_path) == tmp_path / place


def test_the_final_model_comes_before_the_best_so_far(tmp_path):
    for place in ("model", "checkpoints/best"):
        write_model(tmp_path / place)
    assert find_model(str(tmp_path)) == tmp_path / "model"


def test_folders_without_a_model(tmp_path):
    with pytest.raises(ValueError, match=r"gone: no such folder; give a run folder, one by"):
        find_model(tmp_path / "gone")
    with pytest.raises(ValueError, match=r": has no config.json; give a folder written by"):
        find_model(tmp_path)
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(ValueError, match=r"this run has no model yet; continue it with --resume"):
        find_model(tmp_path)
    (tmp_path / "runs/sca-seed0").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"is a comparison; give one of .*runs/sca-seed0$"):
        find_model(tmp_path)


def test_a_built_in_model_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model("outdoor") == BUILTIN / "outdoor"
    assert find_model(Path("outdoor")) == BUILTIN / "outdoor"
    with pytest.raises(ValueError, match=r"no such folder"):  # a path, and nothing else
        find_model("./outdoor")


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("outdoor").mkdir()
    with pytest.raises(ValueError, match=r"^outdoor: has no config.json, and hides the built-in"):
        find_model("outdoor")
    Path("outdoor/recipe.yaml").touch()
    with pytest.raises(ValueError, match=r"^outdoor: this run has no model yet"):
        find_model("outdoor")
    write_model(Path("outdoor"))
    assert find_model("outdoor") == Path("outdoor")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("outdor", "did you mean outdoor? give"),
        ("runs/outdoors", "did you mean outdoor? give"),
        ("cityscapes", "give"),
    ],
)
def test_an_unknown_name_is_told_the_known_ones(name, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no such folder") as refused:
        find_model(name)
    assert str(refused.value) == (
        f"{name}: no such folder; {advice} a run folder, one by save_pretrained, or a built-in "
        "model (outdoor)"
    )


def test_the_model_of_a_run_that_was_cut_off_can_be_loaded(tmp_path):
    made = scaseg.create_model("mobilenet_v2", head="compact", classes=CLASSES, hidden=4)
    made.save_pretrained(tmp_path / "checkpoints" / "best")
    assert scaseg.load_model(tmp_path).config == made.config


@pytest.mark.parametrize(
    "command",
    [
        "predict photo.jpg --out out --model gone",
        "explain photo.jpg --point 1,1 --out why.png --model gone",
        "explain --data photos --out why.png --compare gone gone",
        "evaluate --model gone",
        "evaluate --model gone --data photos",
    ],
)
def test_a_wrong_folder_is_refused_before_torch_is_imported(command, tmp_path):
    """Torch takes seconds to import, Lightning some more."""
    code = (
        "import sys, scaseg.cli\n"
        "try: scaseg.cli.main(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    option = "--compare" if "--compare" in command else "--model"
    assert done.stderr.startswith(f"error: {option}: gone: no such folder; ")
    assert done.stdout == "False False\n"
    assert list(Path(tmp_path).iterdir()) == []
