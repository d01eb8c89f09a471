import csv

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.fix import Repairs
from scaseg.data.fix import fix as fix_data
from scaseg.data.validation.check import check_data
from tests.data.validation.spoilt import label_map, photograph
from tests.data.validation.spoilt import root as root  # five pairs, three classes, two splits


def fix(*arguments):
    main(["data", "fix", *map(str, arguments)])


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        fix(*arguments)
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def manifest(folder):
    with (folder / "manifest.csv").open(newline="") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def values(path):
    return np.asarray(Image.open(path))


@pytest.fixture
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("fixed") / "out"


def test_a_copy_gives_no_names_to_gaps(root, out, capsys):
    """Of the labels 0, 7 and 9 it made ten classes, which training took for granted."""
    for path in (root / "labels").iterdir():
        label_map(path, [0, 7, 9])
    (root / "classes.txt").unlink()
    assert "of the labels 0 to 9 only 3 occur" in refused(capsys, root, out)
    assert not out.exists()
    fix(root, out, "--label-map", "{7: 1, 9: 2}")
    assert len((out / "classes.txt").read_text().splitlines()) == 3


def test_everything_is_mended_in_a_copy(root, out, capsys):
    small = np.array([[0, 1, 2], [2, 1, 0]], np.uint8)
    Image.fromarray(small).save(root / "labels/a.png")  # 2 x 3 for 16 x 24
    upright = Image.fromarray(np.random.default_rng(9).integers(0, 255, (16, 24, 3), np.uint8))
    exif = upright.getexif()
    exif[0x0112] = 6  # shown turned by 90 degrees: 24 high, 16 wide
    upright.save(root / "images/b.jpg", exif=exif)
    stored = np.arange(16 * 24, dtype=np.uint8).reshape(16, 24) % 3
    Image.fromarray(stored).save(root / "labels/b.png")
    (root / "images/c.jpg").write_bytes((root / "images/x.jpg").read_bytes())  # a leak
    for name in ("d", "e"):  # torn; of another photograph's shape
        photograph(root / f"images/{name}.jpg", 7)
        label_map(root / f"labels/{name}.png", [0, 1], size=(16, 24) if name == "d" else (20, 20))
    (root / "images/d.jpg").write_bytes((root / "images/d.jpg").read_bytes()[:-120])
    (root / "train.txt").write_text("a\nb\nc\nd\ne\nmissing\n")
    before = contents(root)

    fix(root, out)
    assert "train 2, test 2; 4 left out, 1 resized, 1 turned;" in capsys.readouterr().out
    assert contents(root) == before
    assert not check_data(FolderDataset, out).errors
    assert (out / "train.txt").read_text().split() == ["a", "b"]
    assert (out / "test.txt").read_text().split() == ["x", "y"]
    assert (out / "images/b.jpg").read_bytes() == before[root / "images/b.jpg"]
    assert np.array_equal(values(out / "labels/a.png"), np.kron(small, np.ones((8, 8), np.uint8)))
    # orientation 6: the first row of the file is the right-most column of the picture
    assert np.array_equal(values(out / "labels/b.png"), np.rot90(stored, -1))
    assert np.array_equal(values(out / "labels/x.png"), values(root / "labels/x.png"))
    rows = {(action, file): detail for action, file, detail in manifest(out)}
    assert rows["resized", "labels/a.png"] == "2 x 3 to 16 x 24"
    assert rows["turned", "labels/b.png"] == "16 x 24 to 24 x 16"
    assert rows["left out", "images/c.jpg"] == "of train: a copy of x.jpg in test"
    assert ("left out", "images/d.jpg") in rows
    assert "another size" in rows["left out", "labels/e.png"]
    assert "'missing'" in rows["left out", "images"]
    assert len(rows) == 6


@pytest.mark.parametrize(("orientation", "size"), [(3, (16, 24)), (2, (16, 24)), (6, (16, 16))])
def test_rotations_that_no_size_shows_are_turned_on_demand(root, out, capsys, orientation, size):
    photograph(root / "images/a.jpg", 9, size)
    upright = Image.open(root / "images/a.jpg")
    exif = upright.getexif()
    exif[0x0112] = orientation
    upright.save(root / "images/a.jpg", exif=exif)
    stored = np.random.default_rng(1).integers(0, 3, size, np.uint8)
    Image.fromarray(stored).save(root / "labels/a.png")
    [said] = check_data(FolderDataset, root).findings
    assert (said.place, said.severity) == ("labels/a.png", "warning")
    assert "EXIF rotation that shows in no size" in said.problem
    assert f"`scaseg data look {root}`" in said.remedy
    assert f"`scaseg data fix {root} DST --turn-all-labels`" in said.remedy
    fix(root, out.with_name("as_they_are"), "--quiet")
    assert np.array_equal(values(out.with_name("as_they_are") / "labels/a.png"), stored)
    fix(root, out, "--turn-all-labels", "--quiet")
    turned = {2: stored[:, ::-1], 3: stored[::-1, ::-1], 6: np.rot90(stored, -1)}[orientation]
    assert np.array_equal(values(out / "labels/a.png"), turned)
    assert np.array_equal(values(out / "labels/b.png"), values(root / "labels/b.png"))
    assert manifest(out) == [("turned", "labels/a.png", "as EXIF turns its photograph")]


def test_classes_are_merged_and_ignored_by_name(root, out, capsys):
    fix(root, out, "--merge", "ground=road,tree", "--ignore", "sky")
    assert (out / "classes.txt").read_text().split() == ["ground"]
    expected = np.array([255, 0, 0, 255], np.uint8)[values(root / "labels/a.png") % 4]
    assert np.array_equal(values(out / "labels/a.png"), expected)
    assert manifest(out) == [
        ("class", "road", "becomes ground"),
        ("class", "tree", "becomes ground"),
        ("class", "sky", "unlabelled"),
    ]
    assert "; 3 classes; see " in capsys.readouterr().out
    # a class may take others in under its own name, and keeps its place
    fix(root, out.with_name("second"), "--merge", "tree=road")
    assert (out.with_name("second") / "classes.txt").read_text().split() == ["sky", "tree"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--merge", "road"), "--merge: road; give NEW=A,B"),
        (("--ignore", "raod"), "error: --ignore: 'raod'; did you mean road?"),
        (("--merge", "a=raod"), "error: --merge: 'raod'; did you mean road?"),
        (("--ignore", "sky,tree,road"), "--ignore: all classes are ignored"),
        (("--merge", "a=sky", "--ignore", "sky"), "--ignore: sky is named twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(root, out, capsys, arguments, message):
    assert message in refused(capsys, root, out, *arguments)
    assert not out.exists()


def test_a_class_that_ends_in_a_blank_is_shown_and_can_be_named(root, out, capsys):
    """Annotation tools write what was typed: Car and `car `."""
    (root / "classes.txt").unlink()

    class Typed(FolderDataset):
        own_classes = classmethod(lambda cls, root: ("Car", "car ", "tree"))

    with pytest.raises(ValueError, match=r"--ignore: 'car'; did you mean 'car '\? give one of"):
        fix_data(Typed, root, out, Repairs(ignore=["car"]))
    fix_data(Typed, root, out, Repairs(merge={"car": ["Car", "car "]}))
    assert (out / "classes.txt").read_text().split() == ["car", "tree"]


def test_only_the_repairs_that_are_named(root, out, capsys):
    label_map(root / "labels/a.png", [0, 1, 2], size=(8, 12))
    line = refused(capsys, root, out, "--drop-duplicates")
    assert "labels/a.png" in line
    assert "another size" in line
    assert not out.exists()
    fix(root, out, "--resize-labels", "--quiet")
    assert values(out / "labels/a.png").shape == (16, 24)


def test_values_that_are_no_class_are_not_dropped_silently(root, out, capsys):
    label_map(root / "labels/a.png", [0, 1, 9])
    assert "labels/a.png: holds labels that are no class" in refused(capsys, root, out)
    assert not out.exists()
    fix(root, out, "--label-map", "{9: 2}", "--quiet")
    assert set(np.unique(values(out / "labels/a.png"))) == {0, 1, 2}


def test_the_destination_may_not_be_the_source_or_of_others(root, out, capsys):
    assert "lies inside the dataset" in refused(capsys, root, root / "fixed")
    line = refused(capsys, root, root)
    assert line == f"error: {root}: is the dataset itself; give another folder"
    fix(root, out, "--quiet")
    before = contents(out)
    fix(root, out, "--quiet")  # again: what is there is kept
    assert contents(out) == before
    assert "give a new folder" in refused(capsys, root, out, "--ignore", "sky")
    assert contents(out) == before


@pytest.mark.parametrize("spoilt", ["unlabelled", "torn"])
def test_a_folder_without_a_label_is_refused(spoilt, root, out, capsys):
    (root / "classes.txt").unlink()
    for path in (root / "labels").iterdir():
        if spoilt == "torn":
            path.write_bytes(b"torn")
        else:
            label_map(path, [255])
    assert "no pixel is labelled" in refused(capsys, root, out)
    assert not out.exists()
