import json
import os
import time

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data import prepare as preparing
from scaseg.data.datasets.coco_stuff import CocoStuff10k, CocoStuff164k
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.sift_flow import SiftFlow, SiftFlowGeo
from scaseg.data.prepare import MARKER, IncompleteError, prepare
from scaseg.io.atomic import LEFTOVER
from scaseg.io.lock import folder_lock
from tests.data import replicas
from tests.data.replicas import SCENES

LISTS = ("classes.txt", "train.txt", "test.txt")


@pytest.fixture
def source(tmp_path):
    return replicas.sift_flow(tmp_path / "official")


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_an_interrupted_run_is_taken_up_again(tmp_path, source):
    ours = tmp_path / "ours"

    def interrupt(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(SiftFlow, source, ours, workers=1, progress=interrupt)
    assert not any((ours / name).exists() for name in LISTS)
    assert not [name for name in files(ours) if name.endswith(".part")]
    kept = {name: (ours / name).stat().st_mtime_ns for name in files(ours)}
    assert "images/coast_bea1.jpg" in kept
    result = prepare(SiftFlow, source, ours)
    assert result.skipped >= 1
    assert result.copied + result.skipped == 3
    assert {name: (ours / name).stat().st_mtime_ns for name in kept} == kept
    assert prepare(SiftFlow, source, ours)[:3] == ({"train": 2, "test": 1}, 0, 3)


def test_an_interruption_does_not_wait_for_the_rest(tmp_path, monkeypatch):
    source = tmp_path / "official"
    for number in range(100):
        replicas.photograph(source / "images" / "val2017" / f"{number:012}.jpg")
        replicas.png(source / "annotations" / "val2017" / f"{number:012}.png", [[0] * 3] * 2)

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    write = preparing._write_pair  # quick ones could all be written before a busy machine hears it
    monkeypatch.setattr(preparing, "_write_pair", lambda task: time.sleep(0.1) or write(task))
    with pytest.raises(KeyboardInterrupt):
        prepare(CocoStuff164k, source, tmp_path / "ours", workers=1, progress=interrupt)
    assert 1 <= len(list((tmp_path / "ours" / "labels").iterdir())) < 100


@pytest.mark.parametrize("name", ["images/coast_bea1.jpg", "labels/coast_bea1.png"])
@pytest.mark.parametrize("spoil", ["gone", "short", "empty"])
def test_files_that_are_not_whole_are_written_again(tmp_path, source, name, spoil):
    ours = tmp_path / "ours"
    prepare(SiftFlow, source, ours)
    whole = (ours / name).read_bytes()
    if spoil == "gone":
        (ours / name).unlink()
    else:
        (ours / name).write_bytes(whole[:-3] if spoil == "short" else b"")
    (ours / "labels" / f"{LEFTOVER}machine-1-0.part").write_bytes(b"left by kill -9")
    assert prepare(SiftFlow, source, ours)[1:3] == (1, 2)
    assert (ours / name).read_bytes() == whole
    assert not [name for name in files(ours) if name.endswith(".part")]


def test_nothing_is_seen_half_written(tmp_path, source, monkeypatch):
    replaced = []
    replace = os.replace

    def watched(partial, path):
        replaced.append(path.name)
        assert partial.parent == path.parent  # one file system: the replacement is atomic
        replace(partial, path)

    monkeypatch.setattr(os, "replace", watched)
    prepare(SiftFlow, source, tmp_path / "ours", workers=1)
    assert sorted(replaced[1:-3]) == sorted(
        f"{name}.{end}"
        for name in ("coast_bea1", "forest_for3", "street_par6")
        for end in ("jpg", "png")
    )
    assert (replaced[0], *replaced[-3:]) == (MARKER, *LISTS)


def test_all_faults_are_listed_and_no_lists_are_written(tmp_path, source):
    ours = tmp_path / "ours"
    prepare(SiftFlow, source, ours)
    labels = source / "SemanticLabels" / SCENES
    (labels / "coast_bea1.mat").write_bytes(b"torn")
    (labels / "street_par6.mat").unlink()
    for name in ("coast_bea1", "street_par6"):
        (ours / "labels" / f"{name}.png").unlink()
    with pytest.raises(IncompleteError, match="official: 3 problems") as refused:
        prepare(SiftFlow, source, ours)  # test, of one pair, has none left
    faults = [str(problem) for problem in refused.value.problems]
    assert sum("coast_bea1.mat" in fault for fault in faults) == 1
    assert sum("street_par6" in fault for fault in faults) == 1
    assert not any((ours / name).exists() for name in LISTS)


def test_only_the_first_faults_are_shown(tmp_path, capsys):
    source = replicas.coco_stuff_164k(tmp_path / "official")
    for number in range(30):
        replicas.photograph(source / "images" / "train2017" / f"{1000 + number:012}.jpg")
    with pytest.raises(SystemExit, match="1"):
        main(["data", "prepare", "coco_stuff_164k", str(source), str(tmp_path / "ours")])
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert (len(lines), lines[-1]) == (6, "and 25 more like these")
    assert f"error: {source}: 30 problems; " in printed.err
    assert (tmp_path / "ours" / "labels" / "000000000139.png").is_file()  # the others are done


def test_folders_of_others_are_refused(tmp_path, source):
    ours = tmp_path / "ours"
    with pytest.raises(ValueError, match="lies inside the dataset"):
        prepare(SiftFlow, source, source / "prepared")
    with pytest.raises(ValueError, match="official: is the dataset itself; give another"):
        prepare(SiftFlow, source, tmp_path / "elsewhere" / ".." / "official")
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        prepare(SiftFlow, tmp_path / "nowhere", ours)
    with pytest.raises(ValueError, match="workers: 0; one or more"):
        prepare(SiftFlow, source, ours, workers=0)
    assert not ours.exists()
    (ours / "images").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"ours: has images that were not prepared here"):
        prepare(SiftFlow, source, ours)
    assert files(ours) == set()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file: is a file; give a folder"):
        prepare(SiftFlow, source, tmp_path / "file")


def test_the_marker_names_whose_folder_it_is(tmp_path, source):
    ours = tmp_path / "ours"
    prepare(SiftFlow, source, ours)
    before = {name: (ours / name).read_bytes() for name in files(ours)}
    with pytest.raises(ValueError, match=r"ours: holds sift_flow prepared from .*official"):
        prepare(SiftFlowGeo, source, ours)
    other = replicas.sift_flow(tmp_path / "copy")
    with pytest.raises(ValueError, match=r"ours: holds sift_flow prepared from .*official"):
        prepare(SiftFlow, other, ours)
    assert {name: (ours / name).read_bytes() for name in files(ours)} == before
    for content in ("torn", json.dumps(["not", "ours"])):
        (ours / MARKER).write_text(content)
        with pytest.raises(ValueError, match=r"ours.*; give a new folder"):
            prepare(SiftFlow, source, ours)


def test_a_data_set_without_splits_or_classes(tmp_path):
    """Also a plain folder; names may have folders, and 16-bit classes do not fit."""
    source, ours = tmp_path / "plain", tmp_path / "ours"
    for name in ("a", "sub/b"):
        replicas.photograph(source / "images" / f"{name}.jpg")
        replicas.png(source / "labels" / f"{name}.png", [[0, 1, 255]] * 2)
    assert prepare(FolderDataset, source, ours)[:3] == ({"all": 2}, 2, 0)
    assert [sample.name for sample in FolderDataset(ours)] == ["a", "sub/b"]
    replicas.png(source / "labels" / "a.png", [[0, 1, 300]] * 2, np.uint16)
    (ours / "labels" / "a.png").unlink()
    with pytest.raises(IncompleteError, match=r"plain: 1 problem;") as refused:
        prepare(FolderDataset, source, ours)
    assert "a.jpg: has labels from 0 to 300; 8 bits hold 0 to 255" in str(refused.value.problems[0])
    for path in source.glob("labels/**/*.png"):
        path.unlink()
    with pytest.raises(IncompleteError, match=r"plain: 3 problems;") as refused:
        prepare(FolderDataset, source, ours)
    assert str(refused.value.problems[-1]) == f"{source}: has no pair"


def test_names_that_end_like_files_are_found_again(tmp_path):
    source, ours = tmp_path / "plain", tmp_path / "ours"
    names = ["a", "b.jpg", "c.PNG", "d_jpg.rf.1"]
    for name in names:
        replicas.photograph(source / "images" / f"{name}.jpg")
        replicas.png(source / "labels" / f"{name}.png", [[0, 1, 255]] * 2)
    replicas.text(source / "train.txt", "".join(f"{name}.jpg\n" for name in names))
    prepare(FolderDataset, source, ours)
    assert FolderDataset(ours, "train").names == names
    assert (ours / "train.txt").read_text() == "a\nb.jpg.jpg\nc.PNG.jpg\nd_jpg.rf.1\n"
    assert prepare(FolderDataset, ours, tmp_path / "again").splits == {"train": 4}


def test_a_full_disk_ends_it(tmp_path, source, monkeypatch):
    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(SiftFlow, source, tmp_path / "ours")
    assert not any((tmp_path / "ours" / name).exists() for name in LISTS)


def test_a_repeated_name_is_written_once(tmp_path):
    source = replicas.coco_stuff_10k(tmp_path / "official")
    train = source / "imageLists" / "train.txt"
    train.write_text(train.read_text() * 2)
    assert prepare(CocoStuff10k, source, tmp_path / "ours")[:3] == ({"train": 2, "test": 1}, 2, 0)


def test_what_changed_in_the_source_is_written_again(tmp_path):
    source, ours = tmp_path / "plain", tmp_path / "ours"
    for name in "ab":
        replicas.photograph(source / "images" / f"{name}.jpg")
        replicas.png(source / "labels" / f"{name}.png", [[0, 1, 255]] * 2)
    replicas.text(source / "train.txt", "a\nb\n")
    prepare(FolderDataset, source, ours)
    replicas.text(ours / "val.txt", "b\n")  # a user's own
    assert prepare(FolderDataset, source, ours)[1:3] == (0, 2)
    replicas.png(source / "labels" / "a.png", [[1, 1, 255]] * 2)  # corrected
    later = (ours / "labels" / "a.png").stat().st_mtime_ns + 1
    os.utime(source / "labels" / "a.png", ns=(later, later))
    assert prepare(FolderDataset, source, ours)[:3] == ({"train": 2}, 1, 1)
    assert FolderDataset(ours, "train")[0].labels[0, 0] == 1
    assert FolderDataset(ours, "val").names == ["b"]  # not ours to remove


def test_two_at_once_do_not_take_each_others_files(tmp_path, source):
    """A second one would remove what the first is writing."""
    ours = tmp_path / "ours"
    with folder_lock(ours), pytest.raises(ValueError, match=r"DST: .*ours: is in use by process"):
        prepare(SiftFlow, source, ours)
    assert prepare(SiftFlow, source, ours).copied == 3
    assert ".lock" not in files(ours)
