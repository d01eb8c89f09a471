"""Data are read whole before they are used, and what was found valid is remembered."""

import json
import os

import pytest
from PIL import Image

from scaseg.data.datasets import base
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import Part, require_valid
from tests.data.validation.spoilt import label_map, labels_everywhere
from tests.data.validation.spoilt import root as root  # a fixture


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SCASEG_CACHE", str(folder))
    return folder


def parts(folder):
    return [Part("train", FolderDataset(folder, "train"))]


@pytest.fixture
def images_read(monkeypatch):
    """Count the photographs that are read."""
    seen = []
    read = base.read_pixels
    monkeypatch.setattr(
        base,
        "read_pixels",
        lambda path, *kind, **more: seen.append(path) or read(path, *kind, **more),
    )
    return seen


def test_pixels_are_counted_on_the_way(root, cache, images_read):
    test = FolderDataset(root, "test")
    train = FolderDataset(root, "train")
    both = [Part("train", train), Part("test", test)]
    assert require_valid(both) == ((288, 288, 288), (192, 192, 192))
    assert len(images_read) == 5
    assert require_valid(both) == ((288, 288, 288), (192, 192, 192))
    assert len(images_read) == 5


def test_another_file_option_or_question_is_looked_at_again(root, cache, images_read):
    require_valid(parts(root))
    assert len(images_read) == 3
    require_valid(parts(root), training=False)
    assert len(images_read) == 6
    other = FolderDataset(root, "train", label_map={0: 1})
    assert require_valid([Part("train", other)])[0] == (0, 576, 288)
    assert len(images_read) == 9
    limited = FolderDataset(root, "train", max_pixels=10**6)
    require_valid([Part("train", limited)])
    assert len(images_read) == 12
    label_map(root / "labels/b.png", [0])
    assert require_valid(parts(root))[0] == (576, 192, 192)
    assert len(images_read) == 15


def test_a_change_that_keeps_size_and_time_is_seen(root, cache):
    require_valid(parts(root))
    path = root / "labels/b.png"
    before, whole = path.stat(), path.read_bytes()
    path.write_bytes(whole[:-20] + bytes(20))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with pytest.raises(ValueError, match=r"labels/b\.png: "):
        require_valid(parts(root))


def test_errors_are_not_remembered_nor_anything_without_a_cache(
    root, cache, images_read, monkeypatch
):
    label_map(root / "labels/b.png", [9])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"b\.png: holds labels that are no class"):
            require_valid(parts(root))
    assert len(images_read) == 6
    assert not list(cache.rglob("*.json"))
    label_map(root / "labels/b.png", [0])
    monkeypatch.setenv("SCASEG_CACHE", "")
    require_valid(parts(root))
    assert not list(cache.rglob("*.json"))


@pytest.mark.parametrize("torn", [b"", b"[", b"[]", b"{}", b'{"a": 1}', b"[[null]]", b"7", b"\xff"])
def test_a_torn_memory_is_none(root, cache, images_read, torn):
    expected = require_valid(parts(root))
    [place] = cache.rglob("*.json")
    assert json.loads(place.read_text()) == [[[288, 288, 288]], []]
    place.write_bytes(torn)
    assert require_valid(parts(root)) == expected
    assert len(images_read) == 6


def test_a_folder_that_cannot_be_written_to_is_no_reason_to_stop(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SCASEG_CACHE", str(tmp_path / "file"))
    assert require_valid(parts(root))


def test_test_images_are_only_compared(root):
    test = FolderDataset(root, "test")
    (root / "images/x.jpg").write_bytes(b"torn")
    label_map(root / "labels/y.png", [77], (3, 3))
    require_valid(parts(root), test=test)
    Image.open(root / "images/c.jpg").save(root / "images/y.jpg", format="PNG")
    with pytest.raises(ValueError, match=r"images/y\.jpg: is in test, and a copy of it in"):
        require_valid(parts(root), test=test)


def test_two_parts_of_one_list_may_share(root):
    train = FolderDataset(root, "train")
    same = [Part("train", train), Part("train", train)]
    assert require_valid(same)[0] == require_valid(same)[1]
    with pytest.raises(ValueError, match=r"a\.jpg: is in train and in val"):
        require_valid([Part("train", train), Part("val", train)])
    with pytest.raises(ValueError, match=r"a\.jpg: is listed more than once in train"):
        require_valid([Part("train", train.subset([0, 0, 1]))])


def test_a_few_masks_may_be_judged_but_not_trained_on(root):
    labels_everywhere(root, [0, 255])
    require_valid(parts(root), training=False)
    with pytest.raises(ValueError, match="probably binary masks"):
        require_valid(parts(root))


def test_progress_is_told(root):
    heard = []
    test = FolderDataset(root, "test")
    require_valid(parts(root), test=test, progress=lambda *said: heard.append(said))
    assert heard == [(done, 5) for done in range(1, 6)]
