"""Folders in nearly our shape: splits are recognized, names meet, all else is named."""

import unicodedata

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.config.run import DataConfig, RunConfig
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.prepare import prepare
from scaseg.data.splits import training_splits
from scaseg.data.validation.check import check_data
from scaseg.training.data import open_data

SIZE = (9, 12)


def photograph(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE[::-1], (value, 2 * value, 9)).save(path)


def labels(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = np.full(SIZE, value, np.uint8)
    drawn[-1] = 0 if value else 1  # data of one class are refused
    Image.fromarray(drawn).save(path)


def pairs(dataset):
    """The files of each pair, below the root."""
    root = dataset.root
    return [tuple(str(path.relative_to(root)) for path in pair[:2]) for pair in dataset.pairs]


LAYOUTS = {  # where the photographs and the label maps of train and of val are
    "ultralytics": ("images/train", "labels/train", "images/val", "labels/val"),
    "by split": ("train/images", "train/labels", "valid/images", "valid/labels"),
    "mmseg": ("img_dir/train", "ann_dir/train", "img_dir/val", "ann_dir/val"),
    "kaggle": ("train", "train_labels", "val", "val_labels"),
    "segnet": ("train", "trainannot", "val", "valannot"),
    "four": ("train_images", "train_masks", "val_images", "val_masks"),
    "reversed": ("images_train", "masks_train", "images_val", "masks_val"),
    "coco": ("images/train2017", "annotations/train2017", "images/val2017", "annotations/val2017"),
    "capitals": ("Images/Training", "Masks/Training", "Images/Validation", "Masks/Validation"),
    "bdd100k": (
        *("images/10k/train", "labels/sem_seg/masks/train"),
        *("images/10k/val", "labels/sem_seg/masks/val"),
    ),
    "labels in one folder": ("images/train", "labels", "images/val", "labels"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_called_after_splits_are_the_splits(tmp_path, layout):
    """They were pooled, and a network was validated on what it had been trained on."""
    train, train_labels, val, val_labels = LAYOUTS[layout]
    for value, name in enumerate("ab"):
        photograph(tmp_path / train / f"{name}.jpg", value)
        labels(tmp_path / train_labels / f"{name}.png")
    photograph(tmp_path / val / "c.jpg", 3)
    labels(tmp_path / val_labels / "c.png")
    assert FolderDataset.splits(tmp_path) == ("train", "val")
    chosen, validation, said = training_splits(DataConfig(root=str(tmp_path)))
    assert pairs(chosen) == [(f"{train}/{x}.jpg", f"{train_labels}/{x}.png") for x in "ab"]
    assert pairs(validation) == [(f"{val}/c.jpg", f"{val_labels}/c.png")]
    assert said == "the split val"
    everything = FolderDataset(tmp_path)
    assert list(everything.names) == ["train/a", "train/b", "val/c"]
    assert everything.notes == []
    assert check_data(FolderDataset, tmp_path).errors == ()


def test_of_several_folders_with_splits_the_label_maps(tmp_path):
    """BDD100K has colour images beside them, and test images without any."""
    for split in ("train", "val", "test"):
        photograph(tmp_path / "images" / "10k" / split / f"{split}.jpg")
    for kind in ("colormaps", "masks"):
        for split in ("train", "val"):
            labels(tmp_path / "labels" / "sem_seg" / kind / split / f"{split}.png")
    assert pairs(FolderDataset(tmp_path, "val")) == [
        ("images/10k/val/val.jpg", "labels/sem_seg/masks/val/val.png")
    ]
    assert FolderDataset(tmp_path).notes == [
        "images/10k/test/ has no label maps beside it: not used"
    ]
    (tmp_path / "labels" / "sem_seg" / "masks").rename(tmp_path / "labels" / "sem_seg" / "ids")
    assert FolderDataset.splits(tmp_path) == ()  # either may be meant


def test_photographs_beside_folders_with_splits_are_not_lost(tmp_path):
    for name in ("day/train/a", "night/b"):
        photograph(tmp_path / "images" / f"{name}.jpg")
        labels(tmp_path / "labels" / f"{name}.png")
    assert FolderDataset(tmp_path).names == ["day/train/a", "night/b"]


@pytest.mark.parametrize("names", ["[sky, sea]", "{0: sky, 1: sea}"])
def test_data_yaml_names_the_classes(tmp_path, names):
    """The layout of Ultralytics, with label maps; classes.txt comes first."""
    root = tmp_path / "data"
    for split in ("train", "val"):
        photograph(root / f"images/{split}/{split}.png")
        labels(root / f"labels/{split}/{split}.png")
    (root / "data.yaml").write_text(f"train: images/train\nval: images/val\nnames: {names}\n")
    assert FolderDataset(root).classes == ("sky", "sea")
    prepare(FolderDataset, root, tmp_path / "copy")
    assert FolderDataset(tmp_path / "copy").classes == ("sky", "sea")
    (root / "data.yaml").write_text("names: {1: sky}")  # by other numbers: no names of ours
    assert FolderDataset(root).classes is None
    (root / "data.yaml").write_text("[: {")
    assert FolderDataset(root).classes is None
    (root / "classes.txt").write_text("a\nb\n")
    assert FolderDataset(root).classes == ("a", "b")


def test_splits_may_use_the_same_names(tmp_path):
    """001.jpg in train and in val are two photographs: no leak, and both are converted."""
    for value, split in enumerate(("train", "val")):
        photograph(tmp_path / "in" / "images" / split / "001.png", value)
        labels(tmp_path / "in" / "labels" / split / "001.png", value)
    prepare(FolderDataset, tmp_path / "in", tmp_path / "out")
    for value, split in enumerate(("train", "val")):
        [sample] = FolderDataset(tmp_path / "out", split)
        assert (sample.image[0, 0, 0], sample.labels[0, 0]) == (value, value)


def test_a_split_without_labels_is_left_aside_and_said(tmp_path):
    """A competition's test images come without labels."""
    for folder in ("train", "test"):
        photograph(tmp_path / folder / "a.jpg", len(folder))
    labels(tmp_path / "train_masks" / "a.png")
    assert FolderDataset.splits(tmp_path) == ("train",)
    report = check_data(FolderDataset, tmp_path)
    assert report.errors == ()
    assert "test/ has no label maps beside it: not used" in str(report.warnings[0])
    with pytest.raises(ValueError, match=r"test: has no label maps beside it; `predict` needs"):
        FolderDataset(tmp_path, "test")


def test_photographs_beside_the_splits_are_said(tmp_path):
    for name in ("train/a", "val/b", "c"):
        photograph(tmp_path / "images" / f"{name}.jpg", 100 + len(name))
        labels(tmp_path / "labels" / f"{name}.png")
    (tmp_path / "test").mkdir()
    heard = []
    open_data(RunConfig(data=DataConfig(root=str(tmp_path))), None, notify=heard.append)
    assert heard == [
        f"note: {tmp_path}: images/ has c.jpg beside train/, val/: not used",
        f"note: {tmp_path}: test/ is not used: the data are in images/",
    ]


def test_folders_of_pairs_beside_the_splits_are_said(tmp_path):
    for name in ("train", "train_extra", "Validation", "holdout"):
        photograph(tmp_path / name / "images" / "a.jpg", 100 + len(name))
        labels(tmp_path / name / "masks" / "a.png")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    assert FolderDataset.splits(tmp_path) == ("train", "val")
    assert FolderDataset(tmp_path, "train").notes == [
        "holdout/ is not used: its name says no split",
        "train_extra/ is not used: its name says no split",
    ]


def test_lists_come_before_folders(tmp_path):
    for name in ("train/a", "train/b", "val/c"):
        photograph(tmp_path / "images" / f"{name}.jpg")
        labels(tmp_path / "labels" / f"{name}.png")
    (tmp_path / "train.txt").write_text("images/train/a.jpg\n")
    (tmp_path / "valid.txt").write_text("c\n")  # in images/val
    assert FolderDataset.splits(tmp_path) == ("train", "val")
    assert FolderDataset(tmp_path, "train").names == ["train/a"]
    assert FolderDataset(tmp_path, "val").names == ["val/c"]


def test_two_folders_that_may_hold_the_labels(tmp_path):
    photograph(tmp_path / "images" / "a.jpg")
    for folder in ("masks", "annotations"):
        labels(tmp_path / folder / "a.png")
    with pytest.raises(ValueError, match=r": annotations/ and masks/ may hold the same; keep one"):
        FolderDataset(tmp_path)
    (tmp_path / "masks").rename(tmp_path / "labels")
    assert pairs(FolderDataset(tmp_path)) == [("images/a.jpg", "labels/a.png")]


def test_other_case_and_other_forms_of_a_letter(tmp_path):
    """Names from a Mac are decomposed: two signs for one letter."""
    composed, decomposed = (unicodedata.normalize(form, "Grün") for form in ("NFC", "NFD"))
    assert composed != decomposed
    photograph(tmp_path / "Images" / f"{decomposed}.JPG")
    labels(tmp_path / "Labels" / f"{composed}.PNG")
    photograph(tmp_path / "Images" / "DSC_1.JPG")
    labels(tmp_path / "Labels" / "dsc_1.png")
    (tmp_path / "Train.txt").write_text(f"dsc_1.jpg\n{decomposed}\n", encoding="utf-8")
    (tmp_path / "Classes.TXT").write_text("sky\n")
    data = FolderDataset(tmp_path, "train")
    assert (list(data.names), data.classes) == (["DSC_1", composed], ("sky",))
    assert len(FolderDataset(tmp_path)) == 2


def test_names_that_differ_in_case_alone_are_not_mixed_up(tmp_path):
    for name in ("a", "A"):
        photograph(tmp_path / "images" / f"{name}.jpg")
    labels(tmp_path / "labels" / "a.png")
    with pytest.raises(ValueError, match=r"no label map for a photograph \('A'\)"):
        FolderDataset(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "images/day/a.jpg labels/day/a.png",
        "/images/day/a.jpg\t/labels/day/a.png",
        "images\\day\\a.jpg, labels\\day\\a.png",
        "day/a.jpg day/a.png",
        "./images/day/a.jpg",
        "/home/somebody/photos/images/day/a.jpg",
        "{root}/images/day/a.jpg {root}/labels/day/a.png",
    ],
)
def test_lists_with_paths_and_with_pairs(tmp_path, line):
    for name in ("day/a", "b"):
        photograph(tmp_path / "images" / f"{name}.jpg")
        labels(tmp_path / "labels" / f"{name}.png")
    (tmp_path / "train.txt").write_text(line.format(root=tmp_path))
    data = FolderDataset(tmp_path, "train")
    assert pairs(data) == [("images/day/a.jpg", "labels/day/a.png")]
    assert data.names == ["day/a"]


def test_lists_as_segnet_publishes_camvid(tmp_path):
    """Their paths begin at the root of somebody else's disk."""
    for split in ("train", "test"):
        photograph(tmp_path / split / "0001TP.png")
        labels(tmp_path / f"{split}annot" / "0001TP.png")
        line = f"/SegNet/CamVid/{split}/0001TP.png /SegNet/CamVid/{split}annot/0001TP.png\n"
        (tmp_path / f"{split}.txt").write_text(line)
    for split in ("train", "test"):
        found = pairs(FolderDataset(tmp_path, split))
        assert found == [(f"{split}/0001TP.png", f"{split}annot/0001TP.png")]
    assert [*FolderDataset(tmp_path).names] == ["train/0001TP", "test/0001TP"]
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("0001TP\n")
    assert [*FolderDataset(tmp_path).names] == ["train/0001TP", "test/0001TP"]


def test_lists_of_pairs_need_no_folders_of_ours(tmp_path):
    photograph(tmp_path / "JPEG" / "my photo.jpg")
    labels(tmp_path / "Aug" / "1.png", 1)
    (tmp_path / "val.txt").write_text("JPEG/my photo.jpg Aug/1.png\n")
    for split in ("val", None):
        assert pairs(FolderDataset(tmp_path, split)) == [("JPEG/my photo.jpg", "Aug/1.png")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.jpg ../a.png", r"has no label map that train.txt names \('../a.png'\)"),
        ("/etc/a.jpg a.png", r"has no photograph that train.txt names \('/etc/a.jpg'\)"),
        ("a.jpg a.png\na", r"train.txt: not every line names a pair \('a'\); give"),
    ],
)
def test_pairs_that_are_not_there(tmp_path, text, said):
    photograph(tmp_path / "data" / "images" / "a.jpg")
    for path in ("a.png", "data/labels/a.png"):
        labels(tmp_path / path)
    (tmp_path / "data" / "train.txt").write_text(text)
    with pytest.raises(ValueError, match=said):
        FolderDataset(tmp_path / "data", "train")


@pytest.mark.parametrize(
    ("photo", "there", "said"),
    [
        ("x.jpg", "x_mask.png", "labels: has x_mask.png for x.jpg, and no label map of its name"),
        ("IMG_1.jpg", "mask-img_1.png", "has mask-img_1.png for IMG_1.jpg"),
        ("sea_7_img.jpg", "sea_7_seg.png", "has sea_7_seg.png for sea_7_img.jpg"),
        ("x.jpg", "x.json", "has x.json for x.jpg"),
        ("x.jpg", "day/x.png", "has day/x.png for x.jpg"),
    ],
)
def test_label_maps_of_other_names_are_named(tmp_path, photo, there, said):
    """And not each photograph for itself."""
    photograph(tmp_path / "images" / photo)
    photograph(tmp_path / "images" / "zz.jpg")
    labels(tmp_path / "labels" / "sea_8_seg.png")
    labels((tmp_path / "labels" / there).with_suffix(".png"))
    (tmp_path / "labels" / there).with_suffix(".png").rename(tmp_path / "labels" / there)
    with pytest.raises(ValueError, match=said) as refusal:
        FolderDataset(tmp_path)
    assert "scaseg data prepare " in str(refusal.value)
    assert "more problems" not in str(refusal.value)


def test_what_a_folder_holds_instead_is_named(tmp_path, capsys):
    for name in ("raw", "notes", ".git"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(SystemExit):
        main(["data", "check", str(tmp_path)])
    said = capsys.readouterr().err
    assert f"images: no such folder ({tmp_path} has notes/, raw/, a.csv); give images/" in said


def test_the_folder_above_or_below_is_named(tmp_path, monkeypatch):
    """An archive in a folder of its own; the folder of the photographs alone."""
    monkeypatch.chdir(tmp_path)
    photograph(tmp_path / "in" / "photos" / "images" / "a.jpg")
    labels(tmp_path / "in" / "photos" / "masks" / "a.png")
    for given in ("in", "in/photos/images", "in/photos/masks"):
        with pytest.raises(ValueError, match=r"did you mean --data in/photos\?"):
            FolderDataset(given)
    (tmp_path / "in/photos/images").rename(tmp_path / "in/photos/raw")
    with pytest.raises(ValueError, match=r"no such folder \(in/photos/masks has a.png\); give"):
        FolderDataset("in/photos/masks")


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">u2", "int64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_labels_that_numpy_saved(tmp_path, dtype, order):
    photograph(tmp_path / "images" / "a.jpg")
    (tmp_path / "labels").mkdir()
    values = np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) % (2 if dtype == "bool" else 7)
    np.save(tmp_path / "labels" / "a.npy", np.asarray(values, dtype, order=order))
    np.testing.assert_array_equal(FolderDataset(tmp_path)[0].labels, values)


class Runs:
    """A pickle that would run something."""

    def __reduce__(self):
        return (exit, ("ran",))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros(SIZE), "an array of float64; save the labels as whole numbers"),
        (np.zeros((*SIZE, 3), int), "an array of 9 x 12 x 3; give"),
        (np.array([[Runs()]]), "an array of object"),
        (np.full(SIZE, 2**40), "holds 1099511627776"),
        (np.zeros((0, 4), int), "an array of 0 x 4"),
    ],
)
def test_arrays_that_are_no_labels(tmp_path, array, said):
    photograph(tmp_path / "images" / "a.jpg")
    (tmp_path / "labels").mkdir()
    np.save(tmp_path / "labels" / "a.npy", array)
    with pytest.raises(ValueError, match=rf"a\.npy: {said}"):
        FolderDataset(tmp_path)[0]


def test_a_small_file_cannot_claim_a_large_array(tmp_path):
    photograph(tmp_path / "images" / "a.jpg")
    (tmp_path / "labels").mkdir()
    path = tmp_path / "labels" / "a.npy"
    np.save(path, np.zeros(SIZE, np.uint8))
    whole = path.read_bytes()
    for wrong, said in (
        (whole.replace(b"(9, 12)", b"(99999, 99999)"[:7]), "cannot be read"),
        (whole.replace(b"(9, 12)", b"(9,912)"), "cannot be read .the file is cut off"),
        (whole.replace(b"(9, 12), }       ", b"(30000, 99999), }"), "99999 x 30000 pixels; at"),
        (whole[:-1], "the file is cut off"),
        (whole[:40], "cannot be read"),
        (b"", "cannot be read"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=said):
            FolderDataset(tmp_path)[0]


def test_labels_of_16_bits(tmp_path):
    photograph(tmp_path / "images" / "a.jpg")
    (tmp_path / "labels").mkdir()
    values = np.arange(SIZE[0] * SIZE[1], dtype=np.uint16).reshape(SIZE) + 300
    Image.fromarray(values).save(tmp_path / "labels" / "a.png")
    np.testing.assert_array_equal(FolderDataset(tmp_path)[0].labels, values)
