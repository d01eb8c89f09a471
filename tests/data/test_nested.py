"""Pairs of folders further in: scenes of a split, or of none."""

import pytest

from scaseg.cli import main
from scaseg.data.datasets.colors import ColorDataset
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.recognition import recognize
from scaseg.data.datasets.suffix import SuffixDataset
from scaseg.data.folders.nested import by_split
from tests.data import replicas

LABELS = [[0, 1, 255]] * 2


def scene(root, images, labels=None, name="000.png"):
    replicas.photograph(root / images / name)
    if labels:
        replicas.png(root / labels / name, LABELS)


def uavid(root):
    for place in ("uavid_train/seq1", "uavid_train/seq2", "uavid_val/seq16"):
        replicas.photograph(root / place / "Images" / "000000.png")
        colors = [[[0, 0, 0], [128, 0, 0], [128, 64, 128]]] * 2  # clutter, building, road
        replicas.png(root / place / "Labels" / "000000.png", colors)
    replicas.photograph(root / "uavid_test" / "seq21" / "Images" / "000000.png")
    return root


@pytest.mark.parametrize(
    ("images", "labels", "key"),
    [
        ("seq1/Images", "seq1/Labels", "/seq1"),
        ("a/seq1/images", "a/seq1/masks", "/a/seq1"),
        ("Train/Town/images_png", "Train/Town/masks_png", "train/Town"),
        ("site/training/imgs-512", "site/training/gt-512", "train/site"),
        ("my_train/images", "my_train/labels", "train"),
        ("images_512", "masks_512", ""),
    ],
)
def test_a_scene_is_found_and_named(tmp_path, images, labels, key):
    scene(tmp_path, images, labels)
    places, notes = by_split(tmp_path)
    assert (list(places), notes) == ([key], [])
    [found] = recognize(tmp_path)
    assert (found.name, found.found) == ("suffix", f"{images}/ with {labels}/")
    data = SuffixDataset(found.root)
    assert data.names == [f"{key}/000".strip("/")]
    assert data[0].labels.tolist() == LABELS


@pytest.mark.parametrize(
    ("images", "labels"),
    [("a/images_png", "a/masks_tif"), ("a/images", "a/masks_old"), ("a/b/c/d/e/images",) * 2],
)
def test_what_is_no_pair(tmp_path, images, labels):
    scene(tmp_path, images, labels.replace("e/images", "e/labels"))
    assert by_split(tmp_path)[0] == {}


def test_what_is_left_out_is_said(tmp_path):
    replicas.photograph(tmp_path / "overview.png")
    for folder in ("train/a", "val/b", "more/c"):
        scene(tmp_path, f"{folder}/images", f"{folder}/labels")
    scene(tmp_path, "test/images_raw")
    data = SuffixDataset(tmp_path)
    assert data.names == ["train/a/000", "val/b/000"]
    assert data.notes == [
        "more/c/ is not used: its name says no split",
        "test/images_raw/ has no label maps beside it: not used",
    ]


def test_a_scene_that_lacks_some_label_maps_is_an_error(tmp_path):
    scene(tmp_path, "train/a/images", "train/a/labels")
    scene(tmp_path, "train/b/images", "train/b/labels")
    scene(tmp_path, "train/a/images", name="001.png")
    with pytest.raises(ValueError, match=r"has no label map for a photograph \('001'\)"):
        SuffixDataset(tmp_path, "train")


def test_two_folders_that_may_hold_the_labels(tmp_path):
    scene(tmp_path, "a/images_png", "a/masks_png")
    scene(tmp_path, "a/images_png", "a/labels_png")
    with pytest.raises(ValueError, match=r"labels_png/ and masks_png/ may hold the same; keep one"):
        SuffixDataset(tmp_path)
    assert recognize(tmp_path) == []


def test_two_scenes_of_one_name(tmp_path):
    for folder in ("first_train/a", "other_train/a"):
        scene(tmp_path, f"{folder}/images", f"{folder}/labels")
    with pytest.raises(ValueError, match=r"other_train/a: first_train/a/ may hold the same; keep"):
        SuffixDataset(tmp_path)


def test_uavid(tmp_path, capsys):
    """Scenes whose classes are colours, and no file says which."""
    root = uavid(tmp_path / "UAVid")
    [found] = recognize(root)
    assert found.name == "colors"
    with pytest.raises(ValueError, match=r"a colour is .* or uavid, which has these"):
        ColorDataset(root)
    command = ["data", "prepare", "auto", str(root), str(tmp_path / "ours")]
    main([*command, "--classes-file", "uavid"])
    said = " ".join(capsys.readouterr().out.split())
    assert "uavid_test/seq21/Images/ has no label maps beside it: not used" in said
    assert FolderDataset.splits(tmp_path / "ours") == ("train", "val")
    data = FolderDataset(tmp_path / "ours", "train")
    assert data.names == ["train/seq1/000000", "train/seq2/000000"]
    assert data[0].labels.tolist() == [[7, 0, 1]] * 2
    assert (data.classes[0], data.classes[7]) == ("building", "background_clutter")
