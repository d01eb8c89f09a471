import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.color_table import VOC, voc_color
from scaseg.data.datasets.voc import VocSegmentation
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests

LABELS = [[0, 1, 255], [15, 20, 0]]


def palette_png(path, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.uint8(labels))
    image.putpalette([level for index in range(256) for level in voc_color(index)])
    image.save(path)


def voc(root, year="VOC2012"):
    home = root / "VOCdevkit" / year
    for name, split in (("2007_000032", "train"), ("2007_000033", "val")):
        replicas.photograph(home / "JPEGImages" / f"{name}.jpg")
        palette_png(home / "SegmentationClass" / f"{name}.png", LABELS)
        replicas.text(home / "ImageSets" / "Segmentation" / f"{split}.txt", f"{name}\n")
    replicas.photograph(home / "JPEGImages" / "2008_000001.jpg")  # labelled by boxes alone
    replicas.text(home / "ImageSets" / "Segmentation" / "test.txt", "2008_000001\n")
    return root


class TestVoc(PairedDatasetTests):
    dataset, classes = VocSegmentation, VOC
    splits = {"train": ["2007_000032"], "val": ["2007_000033"]}
    labels = LABELS

    def replica(self, root):
        return voc(root)


def test_the_palette_is_the_published_one():
    published = {0: (0, 0, 0), 1: (128, 0, 0), 7: (128, 128, 128), 8: (64, 0, 0), 20: (0, 64, 128)}
    assert {index: voc_color(index) for index in published} == published
    assert voc_color(255) == (224, 224, 192)
    assert (len(VOC), VOC[15]) == (21, "person")


def test_test_is_left_out_with_a_word(tmp_path):
    written = prepare(VocSegmentation, voc(tmp_path / "voc"), tmp_path / "ours")
    assert written.notes == ("test: left out, its photographs have no label maps",)
    assert not (tmp_path / "ours" / "test.txt").exists()


def test_rgb_copies_are_read_by_their_colors(tmp_path):
    root = voc(tmp_path)
    path = VocSegmentation(root, "train").pairs[0].labels
    Image.open(path).convert("RGB").save(path)
    assert VocSegmentation(root, "train")[0].labels.tolist() == LABELS
    Image.new("RGB", (3, 2), (1, 2, 3)).save(path)
    with pytest.raises(ValueError, match=r"32.png: has colours of no class \(6 pixels of 1 2 3, "):
        VocSegmentation(root, "train")[0]


@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_an_export_of_cvat(tmp_path, mode):
    """labelmap.txt names the classes by colours; the indices of a palette are no classes."""
    replicas.text(
        tmp_path / "labelmap.txt",
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncar:250,50,83::\nbig tree:1,2,3::\n",
    )
    replicas.photograph(tmp_path / "JPEGImages" / "a.jpg")
    replicas.text(tmp_path / "ImageSets" / "Segmentation" / "train.txt", "a\n")
    colors = np.uint8([[(250, 50, 83), (0, 0, 0), (1, 2, 3)]] * 2)
    (tmp_path / "SegmentationClass").mkdir()
    Image.fromarray(colors).convert(mode, palette=Image.Palette.ADAPTIVE).save(
        tmp_path / "SegmentationClass" / "a.png"
    )
    data = VocSegmentation(tmp_path, "train")
    assert data.classes == ("background", "car", "big tree")
    assert data.palette == ((0, 0, 0), (250, 50, 83), (1, 2, 3))
    assert data[0].labels.tolist() == [[1, 0, 2]] * 2


def test_an_export_of_labelme(tmp_path):
    replicas.text(tmp_path / "class_names.txt", "_background_\ncar\n")
    replicas.photograph(tmp_path / "JPEGImages" / "a.jpg")
    palette_png(tmp_path / "SegmentationClassPNG" / "a.png", [[0, 1, 255]] * 2)
    data = VocSegmentation(tmp_path)
    assert (data.splits(tmp_path), data.classes) == ((), ("_background_", "car"))
    assert data[0].labels.tolist() == [[0, 1, 255]] * 2


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "JPEGImages").mkdir()
    assert VocSegmentation.recognize(tmp_path) is None
    with pytest.raises(ValueError, match="SegmentationClass: no such folder"):
        VocSegmentation(tmp_path)
    for year in ("VOC2007", "VOC2012"):
        voc(tmp_path / "two", year)
    with pytest.raises(ValueError, match=r"several years \(VOC2007, VOC2012\); give the folder"):
        VocSegmentation(tmp_path / "two")


def test_a_limit_that_was_raised_holds_for_every_look(tmp_path, monkeypatch):
    monkeypatch.setattr("scaseg.data.decode.files.MAX_PIXELS", 5)
    root = voc(tmp_path)
    assert VocSegmentation(root, "train", max_pixels=6)[0].labels.tolist() == LABELS
    with pytest.raises(ValueError, match="3 x 2 pixels; at most 5 are taken, raise --max-pixels"):
        VocSegmentation(root, "train")[0]
