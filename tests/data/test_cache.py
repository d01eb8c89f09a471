import os
import pickle
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from scaseg.config.recipe import load_recipe
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.loading import DiskCache, EvaluationDataset, RamCache, TrainingDataset
from scaseg.errors import UserError
from scaseg.training.data import cached


def write(root, index, seed, size=(6, 9)):
    random = np.random.default_rng(seed)
    for folder, shape in (("images", (*size, 3)), ("labels", size)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 3 if folder == "labels" else 256, shape, np.uint8)
        suffix = "png" if folder == "labels" else "bmp"
        save(Image.fromarray(pixels), root / folder / f"{index}.{suffix}")


def save(image, path):
    image.save(path, compress_level=0)  # files of one length, whatever they show


@pytest.fixture
def root(tmp_path):
    for index in range(3):
        write(tmp_path / "data", index, index, size=(6 + index, 9))
    return tmp_path / "data"


def ram(root, tmp_path, **options):
    return RamCache(FolderDataset(root, **options))


def disk(root, tmp_path, **options):
    return DiskCache(FolderDataset(root, **options), tmp_path / "cache")


both = pytest.mark.parametrize("cache", [ram, disk])


def assert_same(found, expected):
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert (found.image.dtype, found.labels.dtype) == (np.uint8, np.int32)
    assert found.name == expected.name


class Untouchable(FolderDataset):
    """Files may be looked for, not read."""

    def __getitem__(self, index):
        raise AssertionError("read again")


@both
def test_a_cache_gives_what_the_data_set_gives(root, tmp_path, cache):
    dataset, kept = FolderDataset(root), cache(root, tmp_path)
    assert len(kept) == 3
    for _ in range(2):
        for index in (2, 0, 1):
            assert_same(kept[index], dataset[index])


def test_memory_is_read_once(root):
    kept = RamCache(FolderDataset(root))
    kept.dataset = Untouchable(root)
    assert_same(kept[1], FolderDataset(root)[1])


def test_disk_is_read_once_by_all_runs(root, tmp_path):
    first = disk(root, tmp_path)
    for index in range(3):
        first[index]
    second = disk(root, tmp_path)

    def refuse(path):
        raise AssertionError("read again")

    second.dataset.read_labels = refuse
    for index in range(3):
        assert_same(second[index], FolderDataset(root)[index])


def test_labels_are_kept_in_8_bits_where_these_are_enough(root, tmp_path):
    disk(root, tmp_path)[0]
    (path,) = (tmp_path / "cache").glob("*.labels.npy")
    assert np.load(path).dtype == np.uint8
    (tmp_path / "cache").rename(tmp_path / "old")
    kept = disk(root, tmp_path, label_map={1: 300})
    for sample in (kept[0], kept[0], ram(root, tmp_path, label_map={1: 300})[0]):
        assert sample.labels.max() == 300
        assert sample.labels.dtype == np.int32


@both
def test_what_a_transform_writes_is_not_kept(root, tmp_path, cache):
    kept, expected = cache(root, tmp_path), FolderDataset(root)[0]
    for _ in range(3):
        sample = kept[0]
        assert_same(sample, expected)
        sample.image[:] = 0
        sample.labels[:] = 7
    assert_same(cache(root, tmp_path)[0], expected)


@pytest.mark.parametrize("path", ["images/0.bmp", "labels/0.png"])
def test_a_newer_file_is_read_again(root, tmp_path, path):
    disk(root, tmp_path)[0]
    before = (root / path).stat()
    with Image.open(root / path) as image:
        mirrored = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    save(mirrored, root / path)
    assert (root / path).stat().st_size == before.st_size  # only its time tells
    os.utime(root / path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert_same(disk(root, tmp_path)[0], FolderDataset(root)[0])


def test_a_file_of_another_length_is_read_again_whatever_its_time(root, tmp_path):
    disk(root, tmp_path)[0]
    paths = [root / "images" / "0.bmp", root / "labels" / "0.png"]
    times = [(path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in paths]
    write(root, 0, seed=99, size=(20, 30))
    for path, before in zip(paths, times, strict=True):
        os.utime(path, ns=before)
    assert_same(disk(root, tmp_path)[0], FolderDataset(root)[0])


@pytest.mark.parametrize(
    "options",
    [{"label_map": {1: 2}}, {"reduce_zero_label": True}, {"ignore_index": 2}],
)
def test_other_label_options_are_another_entry(root, tmp_path, options):
    plain = disk(root, tmp_path)[0]
    other = disk(root, tmp_path, **options)[0]
    assert (plain.labels != other.labels).any()
    for _ in range(2):
        assert_same(disk(root, tmp_path)[0], FolderDataset(root)[0])
        assert_same(disk(root, tmp_path, **options)[0], FolderDataset(root, **options)[0])


def test_labels_that_are_no_class_are_refused_from_the_cache_too(root, tmp_path):
    disk(root, tmp_path)[0]
    with pytest.raises(ValueError, match=r"0\.png: holds \d, but there are 1 classes"):
        disk(root, tmp_path, classes=["only"])[0]


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"PK\x03\x04 no archive", b"\x80\x04no"])
@pytest.mark.parametrize("suffix", ["image", "labels"])
def test_a_torn_entry_is_repaired(root, tmp_path, suffix, damage):
    expected = FolderDataset(root)[0]
    disk(root, tmp_path)[0]
    (path,) = (tmp_path / "cache").glob(f"*.{suffix}.npy")
    whole = path.read_bytes()
    path.write_bytes(damage or whole[:-5])
    assert_same(disk(root, tmp_path)[0], expected)
    assert path.read_bytes() == whole
    path.write_bytes(b"")
    assert_same(disk(root, tmp_path)[0], expected)
    path.unlink()
    assert_same(disk(root, tmp_path)[0], expected)
    assert path.read_bytes() == whole


def test_a_failed_write_leaves_nothing(root, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space left"):
        disk(root, tmp_path)[0]
    assert list((tmp_path / "cache").iterdir()) == []


def test_too_little_memory_is_refused_before_reading(root):
    needed = 4 * 9 * (6 + 7 + 8)
    assert len(RamCache(FolderDataset(root), room=2 * needed)) == 3
    with pytest.raises(ValueError, match=r"data.cache: ram: .* are free; use disk or none"):
        RamCache(Untouchable(root), room=needed)


def test_too_little_disk_is_refused_before_reading(root, tmp_path, monkeypatch):
    needed = 4 * 9 * (6 + 7 + 8)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=needed))
    with pytest.raises(UserError, match=r"data.cache: disk: .* are free; use none, or another"):
        DiskCache(Untouchable(root), tmp_path / "cache")
    monkeypatch.undo()
    for index in range(3):
        disk(root, tmp_path)[index]
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=needed))
    disk(root, tmp_path)  # they are there already


def test_all_runs_share_the_users_cache(root, tmp_path, monkeypatch):
    monkeypatch.setenv("SCASEG_CACHE", str(tmp_path / "user"))
    run = load_recipe(None, {"data.root": str(root), "data.cache": "disk"})
    first = cached(FolderDataset(root), run, tmp_path / "run 1")
    second = cached(FolderDataset(root), run, tmp_path / "run 2")
    assert first.folder == second.folder == tmp_path / "user" / "decoded"
    monkeypatch.setenv("SCASEG_CACHE", "")
    assert cached(FolderDataset(root), run, tmp_path / "run").folder == tmp_path / "run" / "cache"


def test_what_was_not_used_for_long_makes_room(root, tmp_path):
    kept = disk(root, tmp_path)
    for index in range(3):
        kept[index]
    long_ago = time.time() - 10 * 86_400
    for path in kept.folder.iterdir():
        os.utime(path, (long_ago, long_ago))
    kept[1]  # used
    assert sum(path.stat().st_mtime > long_ago + 1 for path in kept.folder.iterdir()) == 2
    images = [kept._paths(index)[0] for index in range(3)]
    DiskCache(kept.dataset, kept.folder, most=sum(path.stat().st_size for path in kept._paths(1)))
    assert [path.exists() for path in images] == [False, True, False]
    assert_same(kept[0], FolderDataset(root)[0])


def test_no_images_need_no_memory(root):
    assert len(RamCache(FolderDataset(root).subset([]), room=1)) == 0


@both
def test_loaders_take_it(root, tmp_path, cache):
    """In a process of their own, and without a warning about arrays that cannot be written."""
    for _ in range(2):
        kept = pickle.loads(pickle.dumps(cache(root, tmp_path)))
        photograph = EvaluationDataset(kept)[1]
        np.testing.assert_array_equal(photograph.labels, FolderDataset(root)[1].labels)
        example = TrainingDataset(kept, [], seed=0)[0, 1]
        assert example.image.shape == (3, 7, 9)
