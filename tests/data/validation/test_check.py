import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import check_data, quick_check
from tests.data.validation.spoilt import (
    ERRORS,
    TEST,
    TRAIN,
    WARNINGS,
    exif_rotated,
    label_map,
    labels_everywhere,
    lines,
    photograph,
    truncate,
)
from tests.data.validation.spoilt import root as root  # a fixture


@pytest.mark.parametrize(
    "spoil", [exif_rotated, lambda root: label_map(root / "labels/a.png", [0], (8, 12))]
)
def test_what_can_be_mended_names_the_command(root, spoil):
    spoil(root)
    [error] = check_data(FolderDataset, root).errors
    assert f": `scaseg data fix {root} DST` does so" in error.remedy


def test_another_shape_is_not_said_to_be_mended(root):
    label_map(root / "labels/a.png", [0], (20, 20))
    [error] = check_data(FolderDataset, root).errors
    assert "data fix" not in error.remedy


def test_a_clean_data_set(root):
    label_map(root / "labels/a_labelTrainIds.png", [0])  # left there by another tool
    report = check_data(FolderDataset, root, workers=2)
    assert report.findings == ()
    assert report.splits == {"train": 3, "test": 2}
    assert report.sizes == dict.fromkeys(("smallest", "median", "largest"), (16, 24))
    assert report.classes == ("sky", "tree", "road")
    assert (report.counted, report.pixels, report.unlabelled) == ("train", (288, 288, 288), 288)
    assert (report.eta, report.weights) == (1 / 3, (1, 1, 1))


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_names_its_file(root, kind):
    spoil, expected = ERRORS[kind]
    spoil(root)
    found = lines(check_data(FolderDataset, root).errors)
    assert len(found) == 1, found
    assert expected in found[0]


@pytest.mark.parametrize("kind", WARNINGS)
def test_every_warning_names_its_file_and_is_no_error(root, kind):
    spoil, expected = WARNINGS[kind]
    spoil(root)
    report = check_data(FolderDataset, root)
    assert report.errors == ()
    assert any(expected in line for line in lines(report.warnings)), report.warnings


def test_all_problems_are_told_together(root):
    kinds = ["truncated photograph", "size", "out of range", "no photograph"]
    (root / "images/more.jpg").write_bytes((root / "images/c.jpg").read_bytes())
    label_map(root / "labels/more.png", [0])
    for kind in kinds:
        ERRORS[kind][0](root)
    (root / "test.txt").write_text("x\ny\ny\nmore")
    found = "\n".join(lines(check_data(FolderDataset, root).errors))
    for kind in kinds:
        assert ERRORS[kind][1] in found
    assert "images/y.jpg: is listed more than once in test" in found
    assert "images/more.jpg: is in test, and a copy of it in train (c.jpg)" in found
    assert found.count("\n") == 5


@pytest.mark.parametrize(
    ("values", "options"),
    [([0, 255], {"label_map": {255: 1}}), ([1, 2, 3], {"reduce_zero_label": True})],
)
def test_the_advice_helps(root, values, options):
    labels_everywhere(root, values)
    assert check_data(FolderDataset, root).errors
    assert not check_data(FolderDataset, root, **options).errors
    with pytest.raises(ValueError, match=r"a\.png: .*--data\."):
        quick_check(FolderDataset(root))
    quick_check(FolderDataset(root, **options))


def test_unlabelled_255_can_be_said(root):
    labels_everywhere(root, [0, 255])
    assert not check_data(FolderDataset, root, label_map={255: 255}).errors


def test_without_lists_everything_is_one_set_and_mmseg_has_its_folders(root, tmp_path):
    for name in ("train.txt", "test.txt"):
        (root / name).unlink()
    report = check_data(FolderDataset, root)
    assert (report.splits, report.counted) == ({"all images": 5}, "all images")
    for split, names in (("train", TRAIN), ("val", TEST)):
        for ours, theirs, suffix in (("images", "img_dir", "jpg"), ("labels", "ann_dir", "png")):
            (root / theirs / split).mkdir(parents=True)
            for position, name in enumerate(names):  # the same names in both are no leak
                (root / ours / f"{name}.{suffix}").rename(
                    root / theirs / split / f"{position}.{suffix}"
                )
    (root / "img_dir" / "test").mkdir()
    report = check_data(FolderDataset, root)
    assert (report.splits, report.errors) == ({"train": 3, "val": 2}, ())
    assert "img_dir/test/ has no label maps beside it: not used" in str(report.warnings[0])


def test_a_folder_that_is_no_data_set(tmp_path):
    with pytest.raises(ValueError, match="images: no such folder"):
        check_data(FolderDataset, tmp_path)


QUICK = ("size", "EXIF", "RGB", "JPEG", "out of range", "binary", "counted from one")


@pytest.mark.parametrize("kind", QUICK)
def test_the_quick_check_says_it_in_one_line(root, kind):
    quick_check(FolderDataset(root))
    spoil, expected = ERRORS[kind]
    spoil(root)
    with pytest.raises(ValueError, match="; ") as refusal:
        quick_check(FolderDataset(root))
    assert f"{root}/{expected}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", ["here", "../here", "."])
def test_relative_folders_are_named_as_they_were_given(root, monkeypatch, place):
    home = root / "here"
    home.mkdir()
    for name in ("images", "labels"):
        (root / name).rename(home / name)
    monkeypatch.chdir(home if place != "here" else root)
    (home / "images/b.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"b\.jpg: not an image") as refusal:
        quick_check(FolderDataset(place))
    expected = "images/b.jpg: " if place == "." else f"{place}/images/b.jpg: "
    assert str(refusal.value).startswith(expected)
    [error] = check_data(FolderDataset, place).errors
    assert error.place == "images/b.jpg"


def test_the_quick_check_counts_the_rest(root):
    for name in "abx":
        label_map(root / f"labels/{name}.png", [0], (9, 9))
    with pytest.raises(ValueError, match=r"a.png: .* \(and 2 more files; `scaseg data check`"):
        quick_check(FolderDataset(root))


def test_the_quick_check_decodes_no_photograph(root, monkeypatch):
    """A file cut off after its header passes: time is spent on label maps only, and on few."""
    path = root / "images" / "a.png"
    photograph(path, 0)
    (root / "images" / "a.jpg").unlink()
    truncate(path)
    truncate(root / "images" / "b.jpg")
    quick_check(FolderDataset(root))
    assert len(check_data(FolderDataset, root).errors) == 2
    monkeypatch.setattr("scaseg.data.validation.check.DECODED", 2)
    Image.new("RGB", (24, 16)).save(root / "labels" / "y.png")
    quick_check(FolderDataset(root))  # looks at a and c
    Image.new("RGB", (24, 16)).save(root / "labels" / "c.png")
    with pytest.raises(ValueError, match=r"c\.png: a RGB label map"):
        quick_check(FolderDataset(root))


def test_label_maps_may_be_arrays(root):
    as_images = check_data(FolderDataset, root)
    for path in (root / "labels").glob("*.png"):
        np.save(path.with_suffix(".npy"), np.asarray(Image.open(path)))
        path.unlink()
    assert check_data(FolderDataset, root) == as_images
    quick_check(FolderDataset(root))


def test_labels_that_are_no_images_are_compared_when_read(root):
    class Arrays(FolderDataset):
        def read_values(self, path):
            return np.load(path)

    dataset = Arrays(root)
    for index, pair in enumerate(dataset.pairs):
        path = pair.labels.with_suffix(".npy")
        np.save(path, np.zeros((16, 24 if index else 23), np.int32))
        dataset.pairs[index] = pair._replace(labels=path)
    with pytest.raises(ValueError, match=r"a.npy: has another size .* \(16 x 23, not 16 x 24\)"):
        quick_check(dataset)
    dataset.pairs = dataset.pairs[1:]
    quick_check(dataset)
