import json

import numpy as np
import pytest

from scaseg.data.datasets.pascal_context import CLASSES, RENAMED, PascalContext
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests
from tests.data.replicas import CONTEXT_CLASSES, OFFICIAL_59, OFFICIAL_59_IDS

MIRRORED = [row[::-1] for row in CONTEXT_CLASSES]


class TestMmseg(PairedDatasetTests):
    dataset, classes, form = PascalContext, CLASSES, "mmseg"
    splits = {"train": ["2008_000002"], "val": ["2008_000003"]}
    labels = CONTEXT_CLASSES

    def replica(self, root):
        return replicas.pascal_context(root, self.form)


class TestMat(TestMmseg):
    form = "mat"


class TestOfficialOrder(TestMmseg):
    form = "official order"


class TestPaddle(TestMmseg):
    form = "paddle"


class TestOldPaddle(TestMmseg):
    form = "old paddle"


def test_the_classes_are_the_official_ones_in_alphabetical_order():
    assert sorted(RENAMED.get(name, name) for name in OFFICIAL_59) == list(CLASSES)
    assert len(CLASSES) == 59


@pytest.mark.parametrize("below", [".", "VOCdevkit", "VOCdevkit/VOC2010"])
@pytest.mark.parametrize("form", ["mmseg", "paddle"])
def test_the_root_may_be_further_in(tmp_path, form, below):
    replicas.pascal_context(tmp_path, form)
    assert PascalContext(tmp_path / below, "val")[0].labels.tolist() == MIRRORED


def test_every_one_of_the_59_ids(tmp_path):
    replicas.pascal_context(tmp_path, "mat")
    replicas.photograph(tmp_path / "VOCdevkit/VOC2010/JPEGImages/2008_000002.jpg", 1, 59)
    ids = np.uint16([OFFICIAL_59_IDS])
    replicas.mat(tmp_path / "trainval" / "2008_000002.mat", LabelMap=ids)
    data = PascalContext(tmp_path, "train")
    found = [data.classes[label] for label in data[0].labels[0]]
    assert found == [RENAMED.get(name, name) for name in OFFICIAL_59]


def test_ids_of_16_bits(tmp_path):
    """The other 400 ids are unlabelled; 8 bits would make 256 + 2 an aeroplane."""
    replicas.pascal_context(tmp_path, "mat")
    path = tmp_path / "trainval" / "2008_000002.mat"
    replicas.mat(path, LabelMap=np.uint16([[0, 1, 258], [459, 266, 2]]))
    data = PascalContext(tmp_path, "train")
    assert data[0].labels.tolist() == [[255, 255, CLASSES.index("motorbike")], [255, 255, 0]]
    replicas.mat(path, LabelMap=np.uint16([[460, 1, 2]] * 2))
    with pytest.raises(ValueError, match=r"2008_000002.mat: holds 460; ids are 1 to 459"):
        data[0]
    replicas.mat(path, S=np.uint16([[460, 1, 2]] * 2))
    with pytest.raises(ValueError, match=r"2008_000002.mat: has no LabelMap, but S"):
        data[0]


def test_a_list_of_the_download_does_not_reorder_pngs(tmp_path):
    """59_labels.txt lies in VOC2010/ here: the PNGs are mmseg's all the same."""
    replicas.pascal_context(tmp_path, "mmseg")
    assert (tmp_path / "VOCdevkit" / "VOC2010" / "59_labels.txt").is_file()
    assert PascalContext(tmp_path, "train")[0].labels.tolist() == CONTEXT_CLASSES


@pytest.mark.parametrize("content", ["1: aeroplane\n", "0: background\n1 aeroplane", ""])
def test_an_order_that_is_not_whole_is_refused(tmp_path, content):
    replicas.pascal_context(tmp_path, "official order")
    labels = tmp_path / "VOCdevkit" / "VOC2010" / "SegmentationClassContext"
    (labels / "59_labels.txt").write_text(content)
    with pytest.raises(ValueError, match=r"59_labels.txt: names [01] of the 59 classes"):
        PascalContext(tmp_path, "train")[0]


def test_an_order_may_begin_with_the_background(tmp_path):
    replicas.pascal_context(tmp_path, "official order")
    path = tmp_path / "VOCdevkit" / "VOC2010" / "SegmentationClassContext" / "59_labels.txt"
    path.write_text("0: background\n" + path.read_text())
    assert PascalContext(tmp_path, "train")[0].labels.tolist() == CONTEXT_CLASSES


def test_pngs_that_do_not_tell_what_0_means(tmp_path):
    replicas.pascal_context(tmp_path, "paddle")
    labels = tmp_path / "VOCdevkit" / "VOC2010" / "Context"
    for name in ("2008_000002", "2008_000003"):
        replicas.png(labels / f"{name}.png", [[0, 1, 2]] * 2)
    with pytest.raises(ValueError, match=r"Context: no PNG holds 255 or 59, so 0 may be a class"):
        PascalContext(tmp_path, "train")[0]
    (labels / "2008_000003.png").write_bytes(b"torn")  # the other one still tells
    replicas.png(labels / "2008_000002.png", [[0, 1, 255]] * 2)
    everything = PascalContext(tmp_path)
    assert everything[0].labels.tolist() == [[0, 1, 255]] * 2
    with pytest.raises(ValueError, match=r"2008_000003.png: not an image"):
        everything[1]


@pytest.mark.parametrize(("form", "value"), [("mmseg", 60), ("mmseg", 255), ("paddle", 59)])
def test_values_that_do_not_fit_the_form(tmp_path, form, value):
    replicas.pascal_context(tmp_path, form)
    data = PascalContext(tmp_path, "train")
    assert data[0].labels.max() == 255
    replicas.png(data.pairs[0].labels, [[value, 1, 2]] * 2)
    with pytest.raises(ValueError, match=rf"2008_000002.png: holds {value}; \d to 5\d are classes"):
        data[0]


def test_the_detail_apis_file_is_refused_with_a_way_out(tmp_path):
    replicas.photograph(tmp_path / "JPEGImages" / "2008_000002.jpg")
    with pytest.raises(ValueError, match=r"has no label maps; one of SegmentationClassContext/"):
        PascalContext(tmp_path)
    (tmp_path / "trainval_merged.json").write_text(json.dumps({"annos_segmentation": []}))
    with pytest.raises(ValueError, match=r"trainval_merged.json: .*SegmentationClassContext/\*"):
        PascalContext(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no VOCdevkit/VOC2010/JPEGImages"):
        PascalContext(tmp_path, "train")
    replicas.pascal_context(tmp_path, "mmseg")
    voc = tmp_path / "VOCdevkit" / "VOC2010"
    (voc / "JPEGImages" / "2008_000002.jpg").unlink()
    with pytest.raises(ValueError, match=r"has no photograph that the list names .*2008_000002"):
        PascalContext(tmp_path, "train")
