"""Images that are no files of a folder, and results that are packed: the same as ever."""

import io
import shutil
import tarfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import scaseg
from scaseg.errors import UserError, WorkError
from scaseg.inference.inputs import Inputs
from scaseg.inference.parts import part_names
from tests.inference.command import predict, refused, written
from tests.inference.models import picture


@pytest.fixture
def many(tmp_path):
    """Ten photographs in two folders, one of them with a dot in its name."""
    folder = tmp_path / "photos"
    for index in range(10):
        path = folder / "ab"[index % 2] / (f"{index}.jpg" if index else "0.x%.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(20 + index, 31, seed=index)).save(path)
    return folder


def labels_of(out):
    """The label maps of a folder by name."""
    maps = out.rglob("[!.]*.png")
    return {path.relative_to(out).as_posix()[:-4]: path.read_bytes() for path in maps}


def parquet_rows(out):
    rows = [row for path in sorted(out.glob("*.parquet")) for row in read_table(path)]
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row["labels"] for row in rows}


def read_table(path):
    return pyarrow.parquet.read_table(path).to_pylist()


def write_parquet(path, photographs, **columns):
    table = {"photo": [one.read_bytes() for one in photographs], **columns}
    pyarrow.parquet.write_table(pyarrow.table(table), path, row_group_size=3)


def test_lists_tables_and_archives_give_what_the_files_give(many, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    predict("photos", model=model, out=out)
    expected = labels_of(out)
    files = sorted(path.relative_to(tmp_path) for path in many.rglob("*.jpg"))
    Path("list.txt").write_text("\n".join(map(str, files)) + "\n\n")
    predict("list.txt", model=model, out=tmp_path / "list")
    assert labels_of(tmp_path / "list") == {f"photos/{k}": v for k, v in expected.items()}

    write_parquet(tmp_path / "t.parquet", files, mask=[b""] * 10)
    predict("t.parquet", model=model, out=tmp_path / "table")
    in_order = [expected[path.relative_to("photos").as_posix()[:-4]] for path in files]
    found = labels_of(tmp_path / "table")
    assert [found[f"t/{row:06}"] for row in range(10)] == in_order

    with tarfile.open("s.tar", "w") as tar:
        for row, path in enumerate(files):
            tar.add(path, f"deep/{row}.jpg")
            tar.add(path, f"deep/{row}.json")  # whatever else is in a sample
    predict("s*.tar", model=model, out=tmp_path / "archive")
    found = labels_of(tmp_path / "archive")
    assert [found[f"s/deep/{row}"] for row in range(10)] == in_order


def test_an_object_store(many, model, tmp_path, capsys):
    import fsspec

    predict(many, model=model, out=tmp_path / "out")
    store = fsspec.filesystem("memory")
    store.put(str(many), "/bucket/", recursive=True)
    predict("memory://bucket/photos", model=model, out=tmp_path / "folder")
    assert labels_of(tmp_path / "folder") == labels_of(tmp_path / "out")
    predict("memory://bucket/*/b/*.jpg", model=model, out=tmp_path / "pattern")
    assert len(labels_of(tmp_path / "pattern")) == 5
    write_parquet(tmp_path / "t.parquet", sorted(many.rglob("*.jpg")))
    store.put(str(tmp_path / "t.parquet"), "/bucket/t.parquet")
    predict("memory://bucket/t.parquet", model=model, out=tmp_path / "table")
    assert sorted(labels_of(tmp_path / "table").values()) == sorted(
        labels_of(tmp_path / "out").values()
    )
    (tmp_path / "list.txt").write_text("memory://bucket/photos/a/2.jpg\nmemory://bucket/no.jpg\n")
    capsys.readouterr()
    predict(tmp_path / "list.txt", "--skip-bad", model=model, out=tmp_path / "list")
    assert written(tmp_path / "list") == ["bucket/photos/a/2.png"]
    assert "skipped: memory://bucket/no.jpg: no such file" in capsys.readouterr().err
    said = refused(capsys, "memory://nowhere", model=model, out=tmp_path / "none")
    assert "cannot be reached" in said


def test_a_web_server(many, serve, model, tmp_path, capsys):
    """One request for each photograph; an empty one is a bad image, not a fault of the network."""
    address, requests = serve(many)
    predict(many / "b", model=model, out=tmp_path / "out")
    (many / "b" / "empty.jpg").touch()
    lines = [f"{address}/b/{path.name}" for path in sorted((many / "b").iterdir())]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    predict(tmp_path / "list.txt", "--skip-bad", model=model, out=tmp_path / "list")
    found = labels_of(tmp_path / "list")
    expected = labels_of(tmp_path / "out")
    assert {name.rpartition("/")[2]: value for name, value in found.items()} == expected
    assert "empty.jpg: " in capsys.readouterr().err
    full = [one for one in requests if "empty" not in one]
    assert sorted(full) == sorted(f"GET /b/{name}.jpg" for name in expected)


def test_a_network_that_is_down_is_no_bad_image(many, model, tmp_path, monkeypatch):
    """With --skip-bad too the run ends: what could be read later must not count as bad."""

    def fail(*_, **__):
        raise TimeoutError("no answer")

    from fsspec.implementations.memory import MemoryFileSystem

    (tmp_path / "list.txt").write_text("memory://bucket/a.jpg\n")
    monkeypatch.setattr(MemoryFileSystem, "open", fail)
    monkeypatch.setattr("scaseg.io.remote.time.sleep", lambda seconds: None)
    with pytest.raises(WorkError, match=r"no answer; --skip-existing goes on from here"):
        scaseg.predict_folder(model, tmp_path / "list.txt", tmp_path / "out", skip_bad=True)


@pytest.mark.parametrize("name", ["../up.jpg", "a/../../up.jpg"])
def test_names_that_lead_out_of_the_folder(name, many, model, tmp_path, capsys):
    (tmp_path / "list.txt").write_text(f"{name}\n")
    said = refused(capsys, tmp_path / "list.txt", model=model, out=tmp_path / "out")
    assert "list.txt, line 1: " in said
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        entry = tarfile.TarInfo(name)
        tar.addfile(entry, io.BytesIO())
    assert "without '..'" in refused(capsys, tmp_path / "s.tar", model=model, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_holds_no_images(model, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    said = refused(capsys, tmp_path / "empty.txt", model=model, out=tmp_path / "out")
    assert "empty.txt: holds no images; give a list" in said
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "t.parquet")
    said = refused(capsys, tmp_path / "t.parquet", model=model, out=tmp_path / "out")
    assert "t.parquet: has the columns a; one of them must hold the bytes of images" in said
    (tmp_path / "t.tar").write_bytes(b"no archive")
    assert "t.tar: cannot be read" in refused(
        capsys, tmp_path / "t.tar", model=model, out=tmp_path / "out"
    )


def test_packed_results_are_the_files(many, model, tmp_path, capsys):
    """Byte by byte, each once, and an interrupted run goes on with parts of its own."""
    wanted = ("--overlay", "--scores", "--json")
    predict(many, *wanted, model=model, out=tmp_path / "out")
    expected = labels_of(tmp_path / "out")
    packed = ("--format", "parquet", "--per-part", 4)
    predict(many / "a", *packed, model=model, out=tmp_path / "short")
    assert written(tmp_path / "short") == ["part-000000.parquet", "part-000001.parquet"]

    predict(many, *wanted, *packed, model=model, out=tmp_path / "table")
    assert parquet_rows(tmp_path / "table") == expected
    row = read_table(tmp_path / "table" / "part-000000.parquet")[1]
    for column, suffix in (("overlay", ".overlay.jpg"), ("scores", ".npz"), ("areas", ".json")):
        file = tmp_path / "out" / f"{row['name']}{suffix}"
        if column != "scores":  # a zip has the time in it
            assert row[column] == file.read_bytes()
        assert len(row[column]) == file.stat().st_size
    assert row["image"] == str(many / f"{row['name']}.jpg")

    tars = tmp_path / "tars"
    options = ("--format", "webdataset", "--per-part", 4, "--confidence")
    predict(many, *options, model=model, out=tars)
    found = {}
    for path in sorted(tars.glob("*.tar")):
        with tarfile.open(path) as tar:
            found |= {entry.name: tar.extractfile(entry).read() for entry in tar}
    assert len([found.pop(name) for name in sorted(found) if ".confidence." in name]) == 10
    assert found.pop("a/0%2Ex%25.png") == expected["a/0.x%"]  # one dot, before the kind
    assert found == {f"{k}.png": v for k, v in expected.items() if k != "a/0.x%"}

    for out, suffix, option in ((tars, "tar", "webdataset"), (tmp_path / "table", "parquet", "")):
        options = ("--format", option or "parquet", "--per-part", 4, "--skip-existing")
        options += ("--confidence",) if option else wanted
        lost = out / f"part-000001.{suffix}"
        gone = set(part_names(lost))
        lost.unlink()
        predict(many, *options, model=model, out=out)
        assert "4 images segmented" in (said := capsys.readouterr().out)
        assert "6 existed already" in said
        assert set(part_names(out / f"part-000003.{suffix}")) == gone  # not in place of another
        assert not lost.exists()
    said = refused(capsys, many, *packed, model=model, out=tmp_path / "short")
    assert "part-000000.parquet: exists already; use --skip-existing" in said
    said = refused(capsys, many, *packed, "--overwrite", model=model, out=tmp_path / "short")
    assert "--overwrite: came with --format parquet; give another folder" in said
    said = refused(capsys, many, "--skip-existing", model=model, out=tmp_path / "short")
    assert "made with --format parquet, and this run is without --format" in said
    scaseg.create_model("tiny", head="pointwise", classes=2).save_pretrained(tmp_path / "other")
    options = ("--skip-existing", *packed)
    said = refused(capsys, many, *options, model=str(tmp_path / "other"), out=tmp_path / "short")
    assert "holds results of another model; give another folder" in said


def test_packed_shares_and_bad_images(many, model, tmp_path, capsys):
    """Machines that share the work write parts of other names; bad images are in none."""
    predict(many, model=model, out=tmp_path / "out")
    (many / "a" / "bad.jpg").write_text("no image")
    for share in ("1/2", "2/2"):
        options = ("--shard", share, "--format", "parquet", "--per-part", 3, "--skip-bad")
        if share == "1/2":
            predict(many, *options, model=model, out=tmp_path / "both")
        else:
            predict(many, *options, "--skip-existing", model=model, out=tmp_path / "both")
    assert parquet_rows(tmp_path / "both") == labels_of(tmp_path / "out")
    assert capsys.readouterr().err.count("bad.jpg: not an image") == 1
    names = {path.name.rpartition("-")[0] for path in (tmp_path / "both").glob("*.parquet")}
    assert names == {"part-1of2", "part-2of2"}
    shutil.copy(many / "a" / "2.jpg", many / "a" / "2.jpeg")
    with pytest.raises(UserError, match=r"would be a/2, and so would another image"):
        scaseg.predict_folder(model, many, tmp_path / "two", file_format="parquet")


def test_of_a_table_elsewhere_the_end_alone_is_listed(many, tmp_path, monkeypatch):
    """A thousand shards are not fetched to be counted."""
    import fsspec

    write_parquet(tmp_path / "t.parquet", sorted(many.rglob("*.jpg")))
    fsspec.filesystem("memory").put(str(tmp_path / "t.parquet"), "/elsewhere/t.parquet")
    monkeypatch.setattr("scaseg.inference.sources.fetch", None)
    found = list(Inputs(["memory://elsewhere/t.parquet"], tmp_path / "out"))
    assert [file.row for file in found] == list(range(10))
