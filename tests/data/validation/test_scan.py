import time
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.scan import in_parallel, scan_labels
from scaseg.losses import paper_class_weights
from tests.data.test_folder import write
from tests.shared import SHARED, needs


def test_pixels_of_each_class_and_unlabelled_ones(tmp_path):
    write(tmp_path, "a", [[0, 0, 2], [255, 2, 2]])
    write(tmp_path, "b", [[0, 0], [255, 255]])
    scan = scan_labels(FolderDataset(tmp_path))
    assert (scan.pixels, scan.unlabelled, scan.problems) == ((4, 0, 3), 3, ())
    named = scan_labels(FolderDataset(tmp_path, classes=["a", "b", "c", "d"]))
    assert named.pixels == (4, 0, 3, 0)
    assert paper_class_weights(named.pixels).weights == (1, 0, 1, 0)
    with pytest.raises(FrozenInstanceError):
        scan.unlabelled = 0


def test_values_are_renamed_as_in_training(tmp_path):
    write(tmp_path, "a", [[0, 1], [2, 255], [9, 9]])
    scan = scan_labels(FolderDataset(tmp_path, label_map={9: 1}, reduce_zero_label=True))
    assert (scan.pixels, scan.unlabelled) == ((3, 1), 2)
    other = scan_labels(FolderDataset(tmp_path, label_map={255: 0, 9: 0}, ignore_index=2))
    assert (other.pixels, other.unlabelled) == ((4, 1), 1)


def test_a_bad_file_does_not_hide_the_others(tmp_path):
    for name in "abcd":
        write(tmp_path, name, [[0, 1], [1, 1]])
    (tmp_path / "labels" / "a.png").write_bytes(b"no image")
    Image.new("RGB", (2, 2)).save(tmp_path / "labels" / "c.png")
    Image.fromarray(np.array([[0, 7]], np.uint8)).save(tmp_path / "labels" / "d.png")
    scan = scan_labels(FolderDataset(tmp_path, classes=["x", "y"]))
    assert scan.pixels == (2, 3)  # b, and what fits of d
    assert [problem.split(": ")[0][-5:] for problem in scan.problems] == ["a.png", "c.png", "d.png"]
    assert "not an image" in scan.problems[0]
    assert "holds 7, which is no class" in scan.problems[2]


def test_faults_of_any_kind_are_told(tmp_path):
    class Odd(FolderDataset):
        def read_values(self, path):
            raise KeyError("S")

    write(tmp_path, "a", [[0]])
    [problem] = scan_labels(Odd(tmp_path)).problems
    assert (
        problem == f"{tmp_path}/labels/a.png: cannot be read (KeyError: 'S'); repair or remove it"
    )


def test_damage_does_not_fill_the_memory(tmp_path):
    write(tmp_path, "a", [[0, 1]])
    huge = np.array([[2**31 - 1, 3]], np.int32)
    Image.fromarray(huge).save(tmp_path / "labels" / "a.tif")
    (tmp_path / "labels" / "a.png").unlink()
    scan = scan_labels(FolderDataset(tmp_path))
    assert scan.pixels == (0, 0, 0, 1)
    assert "holds 2147483647" in scan.problems[0]


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
            range(100),
            workers=2,
            progress=interrupt,
        )
    assert len(done) < 50


@needs(SHARED / "data" / "camvid")
def test_real_data():
    dataset = FolderDataset(SHARED / "data" / "camvid", "val")
    scan = scan_labels(dataset)
    assert sum(scan.pixels) + scan.unlabelled == 101 * 360 * 480
    counted = np.bincount(dataset[5].labels.ravel(), minlength=256)
    dataset.pairs = dataset.pairs[5:6]
    assert scan_labels(dataset).pixels == tuple(counted[:11])
