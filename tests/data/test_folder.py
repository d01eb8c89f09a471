import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from tests.data.base_dataset import PairedDatasetTests
from tests.scenes import write_scenes
from tests.shared import SHARED, needs


def write(root, name, labels, images="images", annotations="labels", size=None):
    labels = np.asarray(labels, np.uint8)
    height, width = size or labels.shape
    for folder in (images, annotations):
        (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (10, 20, 30)).save(root / images / f"{name}.jpg")
    Image.fromarray(labels).save(root / annotations / f"{name}.png")


class TestFolder(PairedDatasetTests):
    dataset, classes = FolderDataset, ("sky", "tree", "road")
    splits = {"train": ["b", "sub/c"], "test": ["a"]}
    labels = [[0, 0], [0, 0]]
    no_split = "dev.txt: no such file; the splits here are train, test"

    def replica(self, root):
        for index, name in enumerate(["b", "a", "sub/c"]):
            write(root, name, np.full((2, 2), index))
        (root / "classes.txt").write_text("sky\ntree\nroad\n\n")
        lines = "# for training\r\nb.jpg\r\nsub\\c\r\n\r\n"
        (root / "train.txt").write_bytes(lines.encode("utf-8-sig"))
        (root / "test.txt").write_text("a")
        return root


def test_mmseg_folders(tmp_path):
    for split in ("train", "val"):
        write(tmp_path, f"x_{split}", np.ones((3, 3)), f"img_dir/{split}", f"ann_dir/{split}")
    names = ["train/x_train", "val/x_val"]
    assert [FolderDataset(tmp_path, s)[0].name for s in ("train", "val")] == names


def test_labels_are_mapped_on_reading(tmp_path):
    write(tmp_path, "mask", [[0, 255], [255, 0]])
    write(tmp_path, "zero", [[0, 1], [2, 255]])
    binary = FolderDataset(tmp_path, label_map={255: 1}, classes=["no", "yes"])
    assert binary[0].labels.tolist() == [[0, 1], [1, 0]]
    reduced = FolderDataset(tmp_path, reduce_zero_label=True)
    assert reduced[1].labels.tolist() == [[255, 0], [1, 255]]
    swapped = FolderDataset(tmp_path, label_map={0: 1, 1: 0})
    assert swapped[1].labels.tolist() == [[1, 0], [2, 255]]
    other = FolderDataset(tmp_path, ignore_index=2, label_map={255: 0})
    assert other.read_labels(tmp_path / "labels" / "zero.png").tolist() == [[0, 1], [255, 0]]
    with pytest.raises(ValueError, match=r"zero.png: class 255 is taken, it means unlabelled"):
        FolderDataset(tmp_path, ignore_index=2)[1]


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (lambda root: None, {"root": "nowhere"}, "nowhere: no such folder"),
        (lambda root: (root / "images").mkdir(), {}, "labels: no such folder"),
        (lambda root: (root / "labels" / "a.png").unlink(), {}, "no label map for a photograph"),
        (lambda root: (root / "images" / "a.jpg").unlink(), {}, "has no photograph"),
        (
            lambda root: [(root / path).touch() for path in ("images/b.HEIC", "labels/b.png")],
            {},
            "b.HEIC: a photograph that cannot be read; save it as JPEG",
        ),
        (lambda root: (root / "train.txt").write_text("zz"), {"split": "train"}, r"names \('zz'\)"),
        (lambda root: (root / "train.txt").write_text("\n"), {"split": "train"}, "names no photo"),
        (
            lambda root: Image.new("RGB", (1, 1)).save(root / "images" / "a.png"),
            {},
            "a.jpg has the same name",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, prepare, options, message):
    if "no such folder" not in message:
        write(tmp_path, "a", np.zeros((2, 2)))
        (tmp_path / "train.txt").write_text("a")
    prepare(tmp_path)
    with pytest.raises(ValueError, match=message):
        FolderDataset(**{"root": tmp_path, **options})


def test_faults_of_single_files_name_them(tmp_path):
    write(tmp_path, "small", np.zeros((4, 6)), size=(5, 6))
    write(tmp_path, "turned", np.zeros((4, 6)), size=(6, 4))
    write(tmp_path, "wrong", np.full((4, 6), 9))
    data = FolderDataset(tmp_path, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"small.png: 4 x 6 but its photograph is 5 x 6"):
        data[0]
    with pytest.raises(ValueError, match=r"turned.png: .*EXIF rotation"):
        data[1]
    with pytest.raises(ValueError, match=r"wrong.png: holds 9, but there are 2 classes \(0 to 1\)"):
        data[2]


@needs(SHARED / "data" / "camvid")
@pytest.mark.parametrize(
    ("name", "split", "count", "classes"),
    [("camvid", "val", 101, 11), ("stanford_background", "test", 143, 8)],
)
def test_real_data(name, split, count, classes):
    data = FolderDataset(SHARED / "data" / name, split)
    assert len(data) == count
    assert len(data.classes) == classes
    sample = data[3]
    assert set(np.unique(sample.labels)) <= {*range(classes), 255}


def test_samples_from_disk_become_examples(tmp_path):
    """Arrays from Pillow are read-only: a transform of the user's own may want to write."""
    from scaseg.data.sample import as_example

    write(tmp_path, "a", np.ones((4, 6)))
    sample = FolderDataset(tmp_path)[0]
    sample.image[0, 0] = 255
    assert as_example(sample).image[:, 0, 0].tolist() == [255, 255, 255]


def test_a_list_that_is_none(tmp_path, monkeypatch):
    """A huge file under a list's name is not read into memory."""
    from scaseg.io import paths

    write_scenes(tmp_path / "scenes", 8)
    monkeypatch.setattr(paths, "MOST_TEXT", 20)
    with pytest.raises(ValueError, match=r"train.txt: more than 20 bytes; a list has a"):
        FolderDataset(tmp_path / "scenes", "train")


def test_an_empty_folder_names_what_it_looks_for(tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"images: has no photograph \(\.jpg, \.jpeg, \.png, "):
        FolderDataset(tmp_path)
