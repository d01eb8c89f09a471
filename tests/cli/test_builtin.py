"""No --model: the built-in one, said in one line; never a folder that happens to have its name."""

import json

import numpy as np
import pytest
from PIL import Image

import scaseg
from scaseg.cli import main
from tests.inference.models import picture

SAID = (
    "no --model: the built-in outdoor model "
    "(sky, tree, road, grass, water, building, mountain, foreground)\n"
)
CLASSES = ("sky", "tree", "road", "grass", "water", "building", "mountain", "foreground")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a photograph."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(picture(48, 64)).save("photo.png")
    return tmp_path


def labelled(root, classes):
    """A data set of one photograph."""
    for folder in ("images", "labels"):
        (root / folder).mkdir(parents=True)
    Image.fromarray(picture(48, 64)).save(root / "images" / "a.png")
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(root / "labels" / "a.png")
    (root / "classes.txt").write_text("\n".join(classes))
    return root


def another_model(folder):
    model = scaseg.create_model("tiny", head="pointwise", classes=["a", "b"], hidden=4)
    scaseg.save_pretrained(model, folder)


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_the_simplest_prediction(place, capsys):
    main(["predict", "photo.png"])
    printed = capsys.readouterr()
    assert printed.err == SAID
    assert "1 photograph segmented" in printed.out
    assert printed.out.endswith(": predictions\n")
    with Image.open("predictions/photo.png") as found:
        assert (found.size, found.mode) == ((64, 48), "P")


def test_a_second_time_nothing_is_replaced(place, capsys):
    main(["predict", "photo.png", "--quiet"])
    before = (place / "predictions" / "photo.png").stat().st_mtime_ns
    said = refused(capsys, "predict", "photo.png")
    assert said.startswith("error: predictions/photo.png: exists already; use --skip-existing")
    assert said.count("\n") == 1
    assert (place / "predictions" / "photo.png").stat().st_mtime_ns == before
    another_model(place / "mine")
    said = refused(capsys, "predict", "photo.png", "--model", "mine", "--skip-existing")
    assert "--out: predictions holds results of another model" in said


def test_quiet_is_quiet(place, capsys):
    main(["predict", "photo.png", "--quiet"])
    main(["explain", "photo.png", "--point", "5,5", "--out", "why.png", "--quiet"])
    assert capsys.readouterr() == ("", "")


def test_the_simplest_explanation(place, capsys):
    main(["explain", "photo.png", "--point", "20,8", "--out", "why.png"])
    assert capsys.readouterr().err == f"{SAID}wrote why.png\n"
    assert (place / "why.png").is_file()


def test_a_folder_of_its_name_wins_where_it_is_named_and_only_there(place, capsys):
    another_model(place / "outdoor")
    main(["predict", "photo.png", "--model", "outdoor", "--out", "named", "--json"])
    main(["predict", "photo.png", "--out", "unnamed", "--json"])
    areas = {
        out: json.loads((place / out / "photo.json").read_text())["areas"]
        for out in ("named", "unnamed")
    }
    assert tuple(areas["named"]) == ("a", "b")
    assert tuple(areas["unnamed"]) == CLASSES
    assert capsys.readouterr().err == SAID


def test_it_can_be_named(place, capsys):
    main(["predict", "photo.png", "--model", "outdoor"])
    assert capsys.readouterr().err == ""
    main(["explain", "photo.png", "--model", "outdoor", "--classes", "--out", "why.npz"])
    assert capsys.readouterr().err == "wrote why.npz\n"


@pytest.mark.parametrize(
    "command",
    [
        "predict gone.png",
        "predict broken.png",
        "explain photo.png --point 999,1 --out why.png",
        "explain broken.png --point 1,1 --out why.png",
    ],
)
def test_what_is_refused_is_answered_with_one_line(command, place, capsys):
    (place / "broken.png").write_bytes(b"\x89PNG")
    said = refused(capsys, *command.split())
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert sorted(path.name for path in place.iterdir()) == ["broken.png", "photo.png"]


@pytest.mark.parametrize("arguments", [[], ["--model", "outdoor"]])
def test_evaluation_needs_data(arguments, place, capsys):
    said = refused(capsys, "evaluate", *arguments)
    assert said == "error: --data: nothing; the built-in model has none, say where yours are\n"


def test_evaluation_of_a_folder_of_ones_own(place, capsys):
    """All of it: no photograph of a stranger's was ever held out of the training."""
    labelled(place / "mine", CLASSES)
    main(["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0"])
    printed = capsys.readouterr()
    assert printed.err == f"{SAID}1 photographs: all images\n"
    assert "mIoU" in printed.out
    main(["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0", "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)["images"] == 1


def test_evaluation_on_other_classes(place, capsys):
    labelled(place / "mine", ("sky", "house"))
    said = refused(capsys, "evaluate", "--data", "mine", "--device", "cpu", "--workers", "0")
    assert said.splitlines()[-1] == (
        "error: mine: class 1 is 'house', the model's is 'tree' (2 and 8 classes); give data with "
        "the model's classes in their order"
    )


def test_it_can_be_compared_with_a_model_of_ones_own(place, capsys):
    another_model(place / "mine")
    labels = Image.fromarray(np.zeros((48, 64), np.uint8))
    labels.save("labels.png")
    arguments = "explain photo.png --label labels.png --out why.png --compare mine outdoor"
    said = refused(capsys, *arguments.split())
    assert said.startswith("error: --compare: outdoor: ")
