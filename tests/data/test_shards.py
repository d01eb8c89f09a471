"""Shards in a folder, in memory and behind a server: the same samples, in a seeded order."""

import functools
import http.server
import io
import json
import os
import shutil
import tarfile
import threading
from itertools import pairwise
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.shards import ShardDataset, read_index
from scaseg.data.loading import DiskCache, EpochBatchSampler, SamplerState, shard_order
from scaseg.errors import UserError
from scaseg.io import remote
from scaseg.io.lock import folder_lock
from scaseg.io.remote import fetch
from tests.scenes import CLASSES, write_scenes

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), size=(24, 30))


@pytest.fixture(scope="module")
def shards(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "tar"
    main(["data", "prepare", "folder", str(scenes), str(folder), "--shards", "4", "--quiet"])
    return folder


@pytest.fixture(scope="module")
def server(shards):
    """An object server on this machine: the shards by http, file by file."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    handler = functools.partial(Handler, directory=str(shards))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()


def same(found, expected):
    assert len(found) == len(expected)
    for index in range(len(expected)):
        one, other = found[index], expected[index]
        assert (one.image == other.image).all()
        assert (one.labels == other.labels).all()


def test_prepare_writes_what_the_folder_holds(scenes, shards):
    assert sorted(path.name for path in shards.iterdir()) == [
        *("shards.json", "test-000000.tar", "train-000000.tar", "train-000001.tar"),
        "val-000000.tar",
    ]
    assert ShardDataset.splits(shards) == ("train", "val", "test")
    for split in ("train", "val", "test"):
        same(ShardDataset(shards, split), FolderDataset(scenes, split))
    data = ShardDataset(shards, "train")
    assert data.classes == CLASSES
    counts = np.bincount(np.concatenate([data[i].labels.ravel() for i in range(6)]))[:3]
    assert data.pixels == tuple(counts)
    assert data.subset(range(3)).pixels is None
    assert data.names[4] == "train-000001/000000"
    with tarfile.open(shards / "val-000000.tar") as tar:  # the photographs as they were
        first = tar.getmembers()[0]
        assert first.name == "000000_scene00.image.png"
        assert tar.extractfile(first).read() == (scenes / "images/scene00.png").read_bytes()


def test_shards_can_be_unpacked_and_are_recognized(scenes, shards, tmp_path, capsys):
    main(["data", "prepare", "auto", str(shards), str(tmp_path / "folder"), "--quiet"])
    same(FolderDataset(tmp_path / "folder", "val"), FolderDataset(scenes, "val"))
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--data", str(shards), "--out", str(tmp_path / "run")])
    assert capsys.readouterr().err.endswith(": give --data.name shards\n")
    with pytest.raises(SystemExit, match="2"):
        main(["data", "check", str(shards)])
    assert f"error: {shards}: holds shards; check the folder that" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["data", "check", str(shards), "--name", "shards"])
    assert "--name: shards; check the folder that they are written" in capsys.readouterr().err


def test_a_prepared_folder_is_not_written_into(scenes, shards):
    before = (shards / "shards.json").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main(["data", "prepare", "folder", str(scenes), str(shards), "--shards", "4"])
    assert (shards / "shards.json").read_bytes() == before


def test_one_process_at_a_time_writes_shards(scenes, tmp_path, capsys):
    out = tmp_path / "out"
    with folder_lock(out), pytest.raises(SystemExit, match="2"):
        main(["data", "prepare", "folder", str(scenes), str(out), "--shards", "4"])
    assert "out: is in use by process" in capsys.readouterr().err
    main(["data", "prepare", "folder", str(scenes), str(out), "--shards", "4", "--quiet"])
    assert (out / "shards.json").is_file()
    assert not (out / ".lock").exists()


def test_a_shard_that_was_written_again_is_another_entry_of_a_cache(shards):
    before = [ShardDataset(shards, "train").fingerprint(index) for index in (0, 1)]
    for path in shards.glob("train-*.tar"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))  # of the same size
    after = [ShardDataset(shards, "train").fingerprint(index) for index in (0, 1)]
    assert len({*before, *after}) == 4


def test_a_server_gives_the_same_and_each_shard_is_fetched_once(scenes, server, tmp_path):
    root, asked = server
    data = ShardDataset(root, "train", cache_dir=tmp_path)
    assert not [path for path in asked if path.endswith(".tar")]  # counted by the index
    same(data, FolderDataset(scenes, "train"))
    same(ShardDataset(root, "train", cache_dir=tmp_path), FolderDataset(scenes, "train"))
    fetched = [path for path in asked if path.endswith(".tar")]
    assert sorted(fetched) == ["/train-000000.tar", "/train-000001.tar"]
    assert data.root is None


@pytest.fixture
def in_memory(shards):
    files = fsspec.filesystem("memory")
    for path in shards.iterdir():
        files.pipe(f"/data/{path.name}", path.read_bytes())
    yield files
    files.rm("/data", recursive=True)


def test_memory_without_an_index_is_listed_and_counted(scenes, in_memory, tmp_path):
    in_memory.rm("/data/shards.json")
    in_memory.pipe("/data/classes.txt", "\n".join(CLASSES).encode())
    data = ShardDataset("memory://data", "train", cache_dir=tmp_path)
    same(data, FolderDataset(scenes, "train"))
    assert data.classes == CLASSES
    assert data.pixels is None


def test_room_is_made_and_what_was_removed_is_fetched_again(in_memory, tmp_path):
    data = ShardDataset("memory://data", "train", cache_dir=tmp_path, shard_cache=1e-9)
    for index in (0, 5, 0, 5):  # of two shards
        assert data[index].image.any()
        (kept,) = (tmp_path / "shards").glob("*.tar")
    kept.unlink()
    assert data[5].image.any()


def test_a_network_that_fails_for_a_moment_is_asked_again(in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)
    get_file, faults = type(in_memory).get_file, [OSError("reset")] * 2
    monkeypatch.setattr(
        type(in_memory),
        "get_file",
        lambda *args, **more: (_ for _ in ()).throw(faults.pop()) if faults else get_file(*args),
    )
    path = fetch("memory://data/val-000000.tar", tmp_path, 1 << 30)
    assert path.read_bytes() == in_memory.cat("/data/val-000000.tar")
    monkeypatch.setattr(  # a connection that ends early, and says nothing
        type(in_memory), "get_file", lambda self, path, target: Path(target).write_bytes(b"short")
    )
    with pytest.raises(Exception, match=r"test-000000.tar: 5 of \d+ bytes came; --resume goes on"):
        fetch("memory://data/test-000000.tar", tmp_path, 1 << 30)
    assert len(list(tmp_path.glob("*.tar"))) == 1


def test_a_network_that_fails_for_good_ends_it(in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)
    faults = [OSError("reset\nby peer")] * 3
    monkeypatch.setattr(
        type(in_memory), "get_file", lambda *_, **__: (_ for _ in ()).throw(faults.pop())
    )
    with pytest.raises(Exception, match=r"fetching memory.*test-000000.tar: reset by peer; --res"):
        fetch("memory://data/test-000000.tar", tmp_path, 1 << 30)
    assert not list(tmp_path.glob("*.tar"))  # nothing torn stays


def test_tables_of_parquet(scenes, tmp_path):

    import pyarrow.parquet

    pairs = FolderDataset(scenes, "train").pairs
    rows = {
        "image": [{"bytes": pair.image.read_bytes(), "path": None} for pair in pairs],
        "mask": [pair.labels.read_bytes() for pair in pairs],
    }
    (tmp_path / "data").mkdir()
    table = pa.table(rows)
    pyarrow.parquet.write_table(
        table, tmp_path / "data/train-00000-of-00001.parquet", row_group_size=2
    )
    same(ShardDataset(tmp_path, "train", classes=CLASSES), FolderDataset(scenes, "train"))
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    chosen = ShardDataset(tmp_path, "train", fields=("image", "mask"))
    same(chosen, FolderDataset(scenes, "train"))


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def png(value, mode="L"):
    buffer = io.BytesIO()
    Image.new(mode, (10, 9), value).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "names", [("a.jpg", "a.png"), ("x/a.png", "x/a.seg.png"), ("a.image.png", "a.mask.png")]
)
def test_the_usual_names_of_webdataset(tmp_path, names):
    files = dict(zip(names, (png((9, 9, 9), "RGB"), png(1)), strict=True))
    write_tar(tmp_path / "train-0.tar", {**files, "a.json": b"{}"})
    sample = ShardDataset(tmp_path)[0]
    assert (sample.image == 9).all()
    assert (sample.labels == 1).all()


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"a.png": png(1)}, {}, "a has png; say which are image and labels: data.fields"),
        ({"a.png": png(1)}, {"fields": ("png", "b.png")}, "a has png; say which"),
        ({"a.jpg": b"no", "a.png": png(1)}, {}, r"train-0.tar: a.jpg: not an image"),
        (
            {"a.jpg": png(1), "a.png": png(7)},
            {"classes": CLASSES},
            "a.png: holds 7, but",
        ),
    ],
)
def test_bad_samples_are_named(tmp_path, files, options, message):
    write_tar(tmp_path / "train-0.tar", files)
    with pytest.raises(UserError, match=message):
        ShardDataset(tmp_path, **options)[0]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "no index of shards"),
        ('{"splits": {"train": [{"name": "../a.tar", "samples": 1}]}}', "../a.tar is no shard"),
        ('{"splits": {"train": [{"name": "a.tar", "samples": -1}]}}', "-1 samples in a.tar"),
        ('{"splits": {"train": [{"name": "a.tar"}]}}', "no index of shards"),
    ],
)
def test_bad_indexes_are_refused(tmp_path, index, message):
    (tmp_path / "shards.json").write_text(index)
    with pytest.raises(UserError, match=message):
        read_index(str(tmp_path))


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("memory://nothing", r"memory://nothing: cannot be reached \(no such folder"),
        ("nosuch://a", r"nosuch://a/shards.json: cannot be reached \(Protocol not known"),
        ("http://127.0.0.1:1/a", r"cannot be reached \(.*; check the address"),
        ("/no/such", r"/no/such: cannot be reached \(no such folder"),
    ],
)
def test_places_that_are_not_there(root, message):
    with pytest.raises(UserError, match=message) as raised:
        ShardDataset(root)
    assert "\n" not in str(raised.value)


def test_a_torn_shard_is_refused(shards, tmp_path):
    data = (shards / "train-000000.tar").read_bytes()
    (tmp_path / "train-0.tar").write_bytes(data[: len(data) // 3])
    with pytest.raises(UserError, match=r"train-0.tar: cannot be read"):
        ShardDataset(tmp_path)
    (tmp_path / "train-0.tar").write_bytes(data)
    (tmp_path / "shards.json").write_text(
        json.dumps({"splits": {"train": [{"name": "train-0.tar", "samples": 9}]}})
    )
    with pytest.raises(UserError, match=r"train-0.tar: 4 samples, but shards.json says more"):
        ShardDataset(tmp_path, "train")[8]


NUMBERS = np.repeat(np.arange(10), 7)


def test_an_order_has_every_sample_once_and_keeps_shards_together():
    first, again, other = (shard_order(NUMBERS, 14, np.random.default_rng(s)) for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert sorted(first) == list(range(70))
    opened = [len(set(NUMBERS[first[start : start + 14]])) for start in range(0, 70, 14)]
    assert max(opened) <= 6  # of ten, for any 14 samples in a row
    assert any(abs(a - b) > 1 for a, b in pairwise(first))


def test_processes_share_the_shards_and_go_on_where_they_were():
    def batches(rank, world, done=0):
        state = SamplerState(3, rank, world, done)
        return list(EpochBatchSampler(70, 4, 0, lambda: state, NUMBERS, 14))

    both = [batches(rank, 2) for rank in (0, 1)]
    indices = [sorted(index for batch in own for _, index in batch) for own in both]
    assert sorted(indices[0] + indices[1]) == list(range(70))
    assert len(set(NUMBERS[indices[0]]) & set(NUMBERS[indices[1]])) <= 4
    assert batches(0, 2, done=5) == both[0][5:]


def test_class_names_are_those_of_the_shards_and_not_of_the_working_folder(
    shards, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("x\ny\nz\n")
    assert ShardDataset(shards, "train").classes == CLASSES
    renamed = tmp_path / "renamed"
    shutil.copytree(shards, renamed)
    index = json.loads((renamed / "shards.json").read_text())
    (renamed / "shards.json").write_text(json.dumps(index | {"classes": None}))
    assert ShardDataset(renamed, "train").classes is None
    # 0 is unlabelled then, and its name no class, as in a folder
    (renamed / "shards.json").write_text(json.dumps(index | {"classes": ["void", "a", "b"]}))
    assert ShardDataset(renamed, "train", reduce_zero_label=True).classes == ("a", "b")


def test_nothing_is_written_where_a_split_is_incomplete(tmp_path, capsys):
    source = write_scenes(tmp_path / "scenes", size=(24, 30))
    (source / "val.txt").write_text("missing\n")
    out = tmp_path / "shards"
    with pytest.raises(SystemExit, match="2"):
        main(["data", "prepare", "folder", str(source), str(out), "--shards", "4", "--quiet"])
    assert "has no photograph that val.txt names ('missing')" in capsys.readouterr().err
    assert not out.exists()


def test_names_are_made_once_and_not_for_each_sample(scenes, tmp_path, monkeypatch):
    asked = []
    made = FolderDataset.names.fget
    counted = property(lambda self: asked.append(len(self)) or made(self))
    monkeypatch.setattr(FolderDataset, "names", counted)
    main(["data", "prepare", "folder", str(scenes), str(tmp_path / "out"), "--shards", "4"])
    data = FolderDataset(scenes, "train")
    cache = DiskCache(data, tmp_path / "cache")
    for index in (0, 1, 2, 0, 1, 2):
        assert cache[index].name == data.pairs[index].name
    assert len([count for count in asked if count > 1]) <= 4  # a split each, once
