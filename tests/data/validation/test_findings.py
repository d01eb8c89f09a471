"""Label maps are counted as training will read them, and a bad file does not hide the others."""

import time

import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import check_data, count_pixels, quick_check
from scaseg.data.validation.samples import check_pairs, in_parallel
from scaseg.errors import UserError
from scaseg.losses import paper_class_weights
from tests.data.test_folder import write
from tests.shared import SHARED, needs


def unlabelled(dataset):
    return sum(check.statistics.unlabelled for check in check_pairs(dataset, dataset.pairs))


def test_pixels_of_each_class_and_unlabelled_ones(tmp_path):
    write(tmp_path, "a", [[0, 0, 2], [255, 2, 2]])
    write(tmp_path, "b", [[0, 0], [255, 255]])
    dataset = FolderDataset(tmp_path)
    assert (count_pixels(dataset), unlabelled(dataset)) == ((4, 0, 3), 3)
    named = count_pixels(FolderDataset(tmp_path, classes=["a", "b", "c", "d"]))
    assert named == (4, 0, 3, 0)
    assert paper_class_weights(named).weights == (1, 0, 1, 0)


def test_values_are_renamed_as_in_training(tmp_path):
    write(tmp_path, "a", [[0, 1], [2, 255], [9, 9]])
    dataset = FolderDataset(tmp_path, label_map={9: 1}, reduce_zero_label=True)
    assert (count_pixels(dataset), unlabelled(dataset)) == ((3, 1), 2)
    dataset = FolderDataset(tmp_path, label_map={255: 0, 9: 0}, ignore_index=2)
    assert (count_pixels(dataset), unlabelled(dataset)) == ((4, 1), 1)


def test_a_bad_file_does_not_hide_the_others(tmp_path):
    for name in "abcd":
        write(tmp_path, name, [[0, 1], [1, 1]])
    (tmp_path / "labels" / "a.png").write_bytes(b"no image")
    Image.new("RGB", (2, 2)).save(tmp_path / "labels" / "c.png")
    Image.fromarray(np.array([[0, 7]], np.uint8)).save(tmp_path / "labels" / "d.png")
    with pytest.raises(UserError, match=r"a\.png: not an image; .* \(and 2 more files;"):
        count_pixels(FolderDataset(tmp_path, classes=["x", "y"]))
    report = check_data(FolderDataset, tmp_path, classes=["x", "y"])
    assert report.pixels == (2, 3)  # b, and what fits of d
    assert {"labels/a.png", "labels/c.png", "labels/d.png"} <= {one.place for one in report.errors}


RED, GREEN, BLUE = (200, 0, 0), (0, 200, 0), (0, 0, 200)


@pytest.mark.parametrize(
    ("palettes", "is_wrong"),
    [
        ([(RED, GREEN), (GREEN, RED)], True),  # as Pillow's quantize() numbers them
        ([(RED, GREEN), (RED, GREEN)], False),
        ([(RED, GREEN), (BLUE, (9, 9, 9))], False),  # another tool's colours, the same indices
        ([(RED, GREEN, RED), (RED, GREEN, RED)], False),  # of few colours each has several classes
        ([(RED, RED), (RED, GREEN)], False),
    ],
)
def test_palettes_that_number_colors_otherwise(tmp_path, palettes, is_wrong):
    for name, palette in zip("ab", palettes, strict=True):
        write(tmp_path, name, np.tile([0, 1 if name == "a" else len(palette) - 1], (8, 4)))
        path = tmp_path / "labels" / f"{name}.png"
        picture = Image.open(path).convert("L")
        picture.putpalette([level for color in palette for level in color])
        picture.save(path)
    found = [one for one in check_data(FolderDataset, tmp_path).warnings if "colours" in str(one)]
    assert bool(found) == is_wrong
    notes = []
    quick_check(FolderDataset(tmp_path), notify=notes.append)
    assert any("(0, 200, 0) is 0 here, 1 in a.png" in note for note in notes) == is_wrong


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        (KeyError("S"), "KeyError: 'S'"),
        (ValueError("two\nlines; of: text"), "ValueError: two lines; of: text"),
    ],
)
def test_errors_of_any_kind_are_findings(tmp_path, fault, detail):
    class Odd(FolderDataset):
        def read_values(self, path):
            raise fault

    write(tmp_path, "a", [[0]])
    with pytest.raises(UserError) as error:
        count_pixels(Odd(tmp_path))
    expected = f"{tmp_path}/labels/a.png: cannot be read ({detail}); repair or remove it"
    assert str(error.value) == expected


def test_damage_does_not_fill_the_memory(tmp_path):
    write(tmp_path, "a", [[0, 1]])
    huge = np.array([[2**31 - 1, 3]], np.int32)
    Image.fromarray(huge).save(tmp_path / "labels" / "a.tif")
    (tmp_path / "labels" / "a.png").unlink()
    report = check_data(FolderDataset, tmp_path)
    assert report.pixels == (0, 0, 0, 1)
    assert any("no class, 0 to 999 (2147483647)" in str(error) for error in report.errors)


@pytest.mark.parametrize("workers", [1, 3, None])
def test_progress_tells_every_step_and_results_keep_their_order(workers):
    seen = []
    found = in_parallel(
        lambda item: time.sleep(0.002 * (5 - item)) or item,
        range(5),
        workers=workers,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert found == [0, 1, 2, 3, 4]
    assert seen == [(done, 5) for done in range(1, 6)]


def test_interruption_does_not_wait_for_what_is_left():
    done = []

    def interrupt(count, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_parallel(
            lambda item: time.sleep(0.01) or done.append(item),
            range(20_000),
            workers=2,
            progress=interrupt,
        )
    assert len(done) < 10_000


@needs(SHARED / "data" / "camvid")
def test_real_data():
    dataset = FolderDataset(SHARED / "data" / "camvid", "val")
    assert sum(count_pixels(dataset)) + unlabelled(dataset) == 101 * 360 * 480
    counted = np.bincount(dataset[5].labels.ravel(), minlength=256)
    dataset.pairs = dataset.pairs[5:6]
    assert count_pixels(dataset) == tuple(counted[:11])
