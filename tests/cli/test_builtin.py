"""No --model: the built-in one, said in one line; never a folder that happens to have its name."""

import json
import re
import shlex

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
    model.save_pretrained(folder)


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
    assert "1 image segmented" in printed.out
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
    said = capsys.readouterr().err
    assert said.startswith(f"{SAID}predicted there: 1 ")
    assert said.splitlines()[1].rpartition(" ")[2] in scaseg.load_model("outdoor").classes
    assert said.splitlines()[2:] == ["wrote why.png"]  # no note: its neurons have other maps
    assert (place / "why.png").is_file()


def test_a_map_that_all_neurons_have_is_said_to_be_one(place, capsys):
    another_model(place / "mine")  # sca with one channel
    main(["explain", "photo.png", "--model", "mine", "--point", "20,8", "--out", "why.png"])
    note = "note: all neurons here have nearly this map (with one pair channel every neuron ranks"
    assert capsys.readouterr().err.splitlines()[1].startswith(note)


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
    assert said == "error: --data: nothing; give data with the classes of the built-in model\n"


def test_evaluation_of_a_folder_of_ones_own(place, capsys):
    """All of it: no photograph of a stranger's was ever held out of the training."""
    labelled(place / "mine", CLASSES)
    main(["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0"])
    printed = capsys.readouterr()
    assert printed.err == f"{SAID}1 image: all images\n"
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
        "the model's classes in their order, or map theirs: --data.classes "
        '\'["sky", "tree", "road", "grass", "water", "building", "mountain", "foreground"]\' '
        "--data.label_map '{0: 0, 1: 255}' (255 leaves out house)"
    )


def test_the_refusal_of_other_classes_says_how_to_go_on(place, capsys):
    """What it proposes is taken, though classes.txt says otherwise."""
    labelled(place / "mine", ("Sky", "house"))
    labels = np.zeros((48, 64), np.uint8)
    labels[:, 32:] = 1
    Image.fromarray(labels).save(place / "mine" / "labels" / "a.png")
    command = ["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0"]
    said = refused(capsys, *command)
    proposed = shlex.split(said.partition("map theirs: ")[2].partition(" (255 leaves")[0])
    main([*command, *proposed, "--json"])
    found = json.loads(capsys.readouterr().out)["per_class"]
    assert found["sky"]["accuracy"] is not None
    assert all(found[name]["accuracy"] is None for name in CLASSES[1:])
    proposed[-1] = "{1: 5}"
    main([*command, *proposed, "--json"])
    assert json.loads(capsys.readouterr().out)["per_class"]["building"]["accuracy"] is not None


@pytest.mark.parametrize(
    ("names", "values", "options", "expected"),
    [
        (("Trees", "SKY", "it's"), {0: "tree", 1: "sky", 2: None}, {}, "{0: 1, 1: 0, 2: 255}"),
        (("sky", "house"), {0: "sky", 1: None, 7: "sky"}, {"label_map": "{7: 0}"}, "7: 0}"),
        (("roads", "sky"), {0: None, 1: "road", 2: "sky"}, {"reduce_zero_label": "true"}, "2: 0}"),
        (("a", "sky"), {0: None, 1: "sky", 9: None}, {"ignore_index": "9"}, "9: 255}"),
        ([f"wood {i}" for i in range(70)] + ["sky"], {69: None, 70: "sky"}, {}, "70: 0}"),
    ],
)
def test_the_mapping_by_name_can_be_pasted(place, capsys, names, values, options, expected):
    """Whatever the options that the labels were read with before, and however long it is."""
    labels = np.resize(np.array(sorted(values), np.uint8), (48, 64))
    Image.fromarray(labels).save(labelled(place / "mine", names) / "labels" / "a.png")
    command = ["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0"]
    given = [word for key, value in options.items() for word in (f"--data.{key}", value)]
    said = refused(capsys, *command, *given)
    assert expected in said
    paste = re.sub(r" \(255 leaves out .*\)$", "", said.partition("map theirs: ")[2].strip())
    main([*command, *given, *shlex.split(paste), "--json"])
    found = json.loads(capsys.readouterr().out)["per_class"]
    counted = {name for name, scores in found.items() if scores["accuracy"] is not None}
    assert counted == {name for name in values.values() if name}


def test_data_without_names_are_taken_by_their_numbers(place, capsys):
    (labelled(place / "mine", CLASSES) / "classes.txt").unlink()
    command = ["evaluate", "--data", "mine", "--device", "cpu", "--workers", "0"]
    main(command)
    assert capsys.readouterr().err == (
        f"{SAID}1 image: all images\nnote: mine names no classes: its labels 0 to 7 are "
        "taken for sky, tree, road, grass, water, building, mountain, foreground\n"
    )
    for quiet in ("--quiet", "--json"):
        main([*command, quiet])
        assert "note" not in capsys.readouterr().err


def trained_with(folder, **data):
    """The built-in model, as if its training had read labels so."""
    model = scaseg.load_model("outdoor")
    model.config.training["recipe"]["data"] = {"name": "folder", "root": "first", **data}
    model.save_pretrained(folder)
    return ["evaluate", "--model", str(folder), "--device", "cpu", "--workers", "0"]


def test_names_given_in_training_do_not_hide_another_order(place, capsys):
    """Those of the training named no classes; these name the same, in another order."""
    command = trained_with(place / "model", classes=list(CLASSES))
    labelled(place / "mine", (*CLASSES[1:], "sky"))
    said = refused(capsys, *command, "--data", "mine")
    assert "class 0 is 'tree', the model's is 'sky' (8 and 8 classes)" in said
    main([*command, "--data", "mine", "--data.classes", json.dumps(CLASSES)])  # said once more
    labelled(place / "ours", [f"{name} (translated)" for name in CLASSES])
    main([*command, "--data", "ours"])
    (place / "mine").rename(place / "first")  # where the training was given its names
    main([*command, "--data", "first"])


def test_labels_of_other_data_are_read_as_in_training_and_that_is_said(place, capsys):
    command = trained_with(place / "model", label_map={9: 1}, reduce_zero_label=True)
    labels = labelled(place / "mine", CLASSES) / "labels" / "a.png"
    Image.fromarray(np.ones((48, 64), np.uint8)).save(labels)
    note = "note: labels are read as in the model's training: "
    for options, said in [
        ((), f"{note}--data.label_map '{{9: 1}}' --data.reduce_zero_label true"),
        (("--data.label_map", "{}"), f"{note}--data.reduce_zero_label true"),
        (("--data.label_map", "{}", "--data.reduce_zero_label", "false"), ""),
    ]:
        main([*command, "--data", "mine", *options])
        lines = capsys.readouterr().err.splitlines()
        assert lines[1:] == ([said] if said else [])


def test_data_of_the_training_need_no_note(place, capsys):
    (labelled(place / "mine", CLASSES) / "classes.txt").unlink()
    model = scaseg.load_model("outdoor")
    model.config.training["recipe"]["data"]["root"] = str(place / "mine")
    model.save_pretrained(place / "model")
    arguments = ["--model", "model", "--data", "mine", "--device", "cpu", "--workers", "0"]
    main(["evaluate", *arguments])
    assert "note" not in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["./outdoor", "outdoor/"])
def test_a_built_in_model_has_no_path(typed, place, capsys):
    assert refused(capsys, "predict", "photo.png", "--model", typed) == (
        f"error: --model: {typed}: no such folder; a built-in model is named without a path: "
        "outdoor\n"
    )


def test_a_list_that_is_not_there(place, capsys):
    labelled(place / "mine", CLASSES)
    said = refused(capsys, "evaluate", "--data", "mine", "--split", "test", "--device", "cpu")
    assert "mine/test.txt: no such file, nor any other list; write it" in said
    assert "(evaluate: --split all)" in said


def test_it_can_be_compared_with_a_model_of_ones_own(place, capsys):
    another_model(place / "mine")
    labels = Image.fromarray(np.zeros((48, 64), np.uint8))
    labels.save("labels.png")
    arguments = "explain photo.png --label labels.png --out why.png --compare mine outdoor"
    said = refused(capsys, *arguments.split())
    assert said.startswith("error: --compare: models: 2 and 8 classes")
