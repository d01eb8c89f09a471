import re

import numpy as np
import pytest
from PIL import Image

import scaseg
from scaseg.cli import main
from tests.explanation.planted import photograph, small_model
from tests.scenes import write_scenes


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("explain")
    for name in ("none", "dot"):
        model = small_model(name, classes=["brick", "leaf", "water"])
        model.head.score.weight.data.zero_()
        model.head.score.bias.data[:] = 0
        model.head.score.bias.data[int(name == "dot")] = 5  # none says brick, dot says leaf
        model.save_pretrained(root / name)
    Image.fromarray(photograph(48, 64)).save(root / "photo.png")
    labels = np.zeros((48, 64), np.uint8)
    labels[10:40, 10:50] = 1
    Image.fromarray(labels).save(root / "labels.png")
    Image.fromarray(labels[:-1]).save(root / "small.png")
    Image.fromarray(labels * 7).save(root / "seven.png")
    (root / "not.png").write_text("nothing")
    write_scenes(root / "data", count=4)
    return root


def run(place, *arguments, out="figure.png"):
    """Run in `place`; give what was written."""
    (place / out).unlink(missing_ok=True)
    main(["explain", *arguments, "--out", str(place / out), "--device", "cpu", "--quiet"])
    return place / out


def refusal(place, capsys, *arguments, out="figure.png", code=2):
    (place / out).unlink(missing_ok=True)
    before = sorted(place.iterdir())
    with pytest.raises(SystemExit) as stopped:
        main(["explain", *arguments, "--out", str(place / out), "--device", "cpu"])
    assert stopped.value.code == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "; " in said
    assert sorted(place.iterdir()) == before
    return said


def test_points(place):
    image, model = str(place / "photo.png"), str(place / "dot")
    path = run(place, image, "--model", model, "--point", "3,4", "--point", "63,47")
    with Image.open(path) as figure:
        assert figure.size[0] == 1500


@pytest.mark.parametrize(
    ("way", "kind"), [(["--grid", "1x2"], "npz"), (["--classes"], "npz"), (["--classes"], "svg")]
)
def test_grids_and_classes(place, way, kind):
    image, model = str(place / "photo.png"), str(place / "dot")
    path = run(place, image, "--model", model, *way, out=f"figure.{kind}")
    if kind == "npz":
        with np.load(path) as found:
            assert len(found["maps"]) == (2 if way[0] == "--grid" else 1)
            assert found["maps"].sum((1, 2)) == pytest.approx(1, abs=1e-4)


def test_the_format_may_be_said(place):
    image, model = str(place / "photo.png"), str(place / "dot")
    arguments = [image, "--model", model, "--point", "3,4", "--format", "pdf"]
    assert run(place, *arguments, out="figure").read_bytes().startswith(b"%PDF")


def test_two_models(place):
    image, label = str(place / "photo.png"), str(place / "labels.png")
    models = [str(place / "none"), str(place / "dot")]
    run(place, image, "--label", label, "--compare", *models)


def test_two_models_on_a_data_set(place, capsys):
    models = [str(place / "none"), str(place / "dot")]
    data = ("--data", str(place / "data"), "--split", "all")
    out = run(place, *data, "--compare", *models, "--top", "2")
    out.unlink()
    main(["explain", *data, "--compare", *models, "--out", str(out), "--device", "cpu"])
    said = capsys.readouterr().err
    assert re.search(r"images?: only dot is right in [\d.]+ % of the pixels, only none in", said)


def test_nothing_is_overwritten(place, capsys):
    arguments = ["explain", str(place / "photo.png"), "--model", str(place / "dot")]
    arguments += ["--point", "1,1", "--out", str(place / "there.png"), "--device", "cpu"]
    (place / "there.png").write_text("mine")
    with pytest.raises(SystemExit):
        main(arguments)
    assert "there already; use --overwrite" in capsys.readouterr().err
    assert (place / "there.png").read_text() == "mine"
    with pytest.raises(SystemExit):
        main([*arguments, "--overwrite"])
    assert "there.png: was not made by scaseg; only results" in capsys.readouterr().err
    assert (place / "there.png").read_text() == "mine"
    (place / "there.png").unlink()
    for kind in ("png", "pdf", "svg", "npz"):
        for _ in range(2):
            main([*arguments, "--format", kind, "--overwrite"])
        assert len((place / "there.png").read_bytes()) > 1000
    (place / "there.png").unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("photo.png --model dot --point 64,0", "--point: 64,0 is outside the image of 64 x 48"),
        ("photo.png --model dot --point 3", "--point: '3'; give two numbers X,Y"),
        ("photo.png --model dot --point nan,0", "two numbers"),
        ("photo.png --model dot --grid 3", "--grid: '3'; give rows and columns"),
        ("photo.png --model dot --grid 0x3", "--grid: '0x3'; give rows and columns"),
        ("photo.png --model dot --grid 30x30", "--point: 900; a figure has room for"),
        ("photo.png --model dot", "--point: none; give --point X,Y, --grid RxC or --classes"),
        ("photo.png --model dot --point 1,1 --classes", "--point and --classes; give"),
        ("photo.png --model none --point 1,1", "context is 'none'"),
        ("photo.png --model nothing --point 1,1", "no such folder"),
        ("not.png --model dot --point 1,1", "not an image"),
        ("gone.png --model dot --point 1,1", "no such file"),
        ("--model dot --point 1,1", "IMAGE: none; give"),
        ("photo.png --model dot --point 1,1 --top 3", "--top: goes with --compare"),
        ("photo.png --compare none dot", "--label: none;"),
        ("photo.png --label labels.png --compare dot none", "context is 'none'"),
        ("photo.png --label labels.png --compare dot dot", "right and wrong at the same"),
        ("photo.png --label small.png --compare none dot", "47 x 64 but its photograph is 48"),
        ("photo.png --label photo.png --compare none dot", "a RGB label map"),
        ("photo.png --label seven.png --compare none dot", "holds 7, but there are 3 classes"),
        ("photo.png --data data --compare none dot", "--data: goes without IMAGE"),
        ("--data data --label labels.png --compare none dot", "--label: goes with IMAGE"),
        ("--data gone --compare none dot", "no such folder"),
        ("photo.png --model dot --label labels.png --compare none dot", "--model: --compare finds"),
    ],
)
def test_bad_input_is_one_line(place, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(place)
    assert said in refusal(place, capsys, *arguments.split())


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("figure.bmp", "ends in none of .png .pdf .svg .npz"),
        ("gone/figure.png", "cannot be written (No such file or directory); give another place"),
    ],
)
def test_bad_places(place, capsys, out, said):
    arguments = [str(place / "photo.png"), "--model", str(place / "dot"), "--point", "1,1"]
    assert said in refusal(place, capsys, *arguments, out=out)


def test_too_little_memory_is_one_line(place, capsys, monkeypatch):
    def too_much(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory:\n you tried")

    monkeypatch.setattr("scaseg.explanation.maps.extract_features", too_much)
    arguments = [str(place / "photo.png"), "--model", str(place / "dot"), "--point", "1,1"]
    assert "out of memory" in refusal(place, capsys, *arguments, code=1)


def test_labels_are_read_as_in_training(place):
    """A mask of 0 and 255, which training was told to read as two classes."""
    values = np.zeros((48, 64), np.uint8)
    values[10:40, 10:50] = 255
    Image.fromarray(values).save(place / "mask.png")
    model = scaseg.load_model(place / "dot")
    model.config.training["recipe"] = {"data": {"label_map": {"255": 1}}}
    model.save_pretrained(place / "masks")
    arguments = ["--label", str(place / "mask.png"), "--compare", str(place / "none")]
    run(place, str(place / "photo.png"), *arguments, str(place / "masks"))
