"""Results of two models, or made in two ways, are not mixed in one folder without a word."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import scaseg
from scaseg.inference.outputs import RECORD, Provenance, fingerprint
from tests.inference.command import predict, refused, written
from tests.training.test_checkpoint_io import told


@pytest.fixture(scope="module")
def other(model, tmp_path_factory):
    """The same model, one weight of it changed."""
    folder = tmp_path_factory.mktemp("other")
    made = scaseg.load_model(model)
    with torch.no_grad():
        next(made.head.parameters()).view(-1)[0] += 1
    made.save_pretrained(folder)
    return str(folder)


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_model_does_not_go_on(photos, model, other, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos / "a", model=model, out=out)
    before = everything(out)
    for images in (photos / "a", photos / "one.jpg"):
        said = refused(capsys, images, "--skip-existing", model=other, out=out)
        assert f"--out: {out} holds results of another model; use --overwrite or another" in said
    assert "results of another model" in refused(capsys, photos / "one.jpg", model=other, out=out)
    assert everything(out) == before
    predict(photos / "a", "--skip-existing", model=model, out=out)


def test_a_copy_of_the_model_goes_on(photos, model, tmp_path, capsys):
    """Machines have their own copies, and other paths."""
    shutil.copytree(model, tmp_path / "run" / "model")
    out = tmp_path / "out"
    predict(photos, "--shard", "1/2", model=model, out=out)
    record = (out / RECORD).read_bytes()
    predict(photos, "--shard", "2/2", "--device", "cpu", model=str(tmp_path / "run"), out=out)
    predict(photos, "--skip-existing", "--batch-size", 2, model=model, out=out)
    assert "3 existed already" in capsys.readouterr().out
    assert (out / RECORD).read_bytes() == record


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("", "--tta", "made without --tta, and this run is with --tta"),
        ("--window 24", "", "made with --window 24, and this run is without --window"),
        ("--window 24", "--window 32", "with --window 24, and this run is with --window 32"),
        ("--window 24", "--window 24 --overlap 4", "with --overlap 12, and this run"),
        ("--window 24", "--window 24 --context-scope image", "with --context-scope window, and"),
        ("--precision bf16", "", "with --precision bf16, and this run is with --precision 32"),
    ],
)
def test_other_options_do_not_go_on(first, second, said, photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos / "one.jpg", *first.split(), model=model, out=out)
    options = ("--skip-existing", *second.split())
    assert said in refused(capsys, photos, *options, model=model, out=out)
    predict(photos, "--skip-existing", *first.split(), model=model, out=out)


def test_results_without_a_record_are_taken_as_they_are(photos, model, other, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos / "one.jpg", model=other, out=out)
    (out / RECORD).unlink()
    predict(photos, "--skip-existing", model=model, out=out)
    assert "1 existed already" in capsys.readouterr().out
    assert json.loads((out / RECORD).read_text())["model"] == fingerprint(Path(model))


def test_all_of_anothers_results_may_be_replaced(photos, model, other, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos, model=model, out=out)
    before = everything(out)
    said = refused(capsys, photos / "a", "--overwrite", model=other, out=tmp_path / "out")
    assert "results of another model, and " in said
    assert ".png would stay; give all of its images, or another folder" in said
    said = refused(capsys, photos, "--shard", "1/2", "--overwrite", model=other, out=out)
    assert "would stay" in said
    assert everything(out) == before
    predict(photos, "--overwrite", model=other, out=out)
    predict(photos, "--skip-existing", model=other, out=out)
    assert "3 existed already" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--overlay", "--scores", "--json", "--confidence"])
def test_nothing_of_anothers_stays_beside_what_is_replaced(
    photos, model, other, tmp_path, capsys, option
):
    """A picture of the old labels lay beside the new ones."""
    out = tmp_path / "out"
    predict(photos, option, model=model, out=out)
    before = everything(out)
    said = refused(capsys, photos, "--overwrite", model=other, out=out)
    assert "results of another model, and " in said
    assert "would stay; give its option too, remove it, or give another folder" in said
    assert everything(out) == before
    predict(photos, "--overwrite", model=model, out=out)  # those of the same model agree
    predict(photos, option, "--overwrite", model=other, out=out)


def test_a_file_of_the_user_may_stay_beside(photos, model, other, tmp_path):
    out = tmp_path / "out"
    predict(photos, model=model, out=out)
    (out / "one.json").write_text("{}")
    predict(photos, "--overwrite", model=other, out=out)
    assert (out / "one.json").read_text() == "{}"


def test_results_replaced_in_part_are_nobodys(photos, model, other, tmp_path, capsys):
    """Cut off while it replaces another model's results, a run leaves both: none goes on."""
    out = tmp_path / "out"
    predict(photos, model=model, out=out)
    (photos / "one.jpg").write_text("no longer a photograph")
    refused(capsys, photos, "--overwrite", model=other, out=out, code=1)
    for one in (model, other):
        said = refused(capsys, photos, "--skip-existing", model=one, out=out)
        assert "results of several models, of a run with --overwrite that was cut off" in said
    (photos / "one.jpg").unlink()
    assert "one.png would stay" in refused(capsys, photos, "--overwrite", model=other, out=out)
    (out / "one.png").unlink()
    predict(photos, "--overwrite", model=other, out=out)
    predict(photos, "--skip-existing", model=other, out=out)


def test_the_record_of_results_that_are_gone(photos, model, other, tmp_path):
    out = tmp_path / "out"
    predict(photos / "one.jpg", model=model, out=out)
    (out / "one.png").unlink()
    predict(photos, model=other, out=out)
    predict(photos, "--skip-existing", model=other, out=out)
    assert len(written(out)) == 3


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_record_that_is_none(text, photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / RECORD).write_bytes(text.encode("latin-1"))
    said = refused(capsys, photos, model=model, out=out)
    assert f"{RECORD}: not a record of predict; remove it" in said
    assert written(out) == []


@pytest.mark.parametrize("links", [True, False])
def test_machines_that_begin_together(links, model, tmp_path, monkeypatch):
    if not links:

        def refuse(*_):
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr("os.link", refuse)
    records = [Provenance(tmp_path / "out", Path(model), {"--tta": False}) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(Provenance.begin, records))
    assert all(record.begun for record in records)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [RECORD]


def test_of_two_ways_that_begin_together_one_is_refused(model, tmp_path):
    records = [Provenance(tmp_path / "out", Path(model), {"--window": n}) for n in (16, 32)]
    for record in records:
        record.check()
    records[0].begin()
    with pytest.raises(ValueError, match=r"made with --window 16, and this run is with --window"):
        records[1].begin()
    assert not records[1].begun


def test_a_bad_photograph_is_no_cut(photos, model, other, tmp_path, capsys):
    """It has no result, of either model: the folder is the second one's alone."""
    folder, out = tmp_path / "mixed", tmp_path / "out"
    shutil.copytree(photos / "a", folder)
    (folder / "page.jpg").write_text("<html>")
    predict(folder, "--skip-bad", model=model, out=out)
    predict(folder, "--skip-bad", "--overwrite", model=other, out=out)
    predict(folder, "--skip-bad", "--skip-existing", model=other, out=out)
    # but one that was sound before has
    sound = next(path for path in folder.rglob("*.*") if path.name != "page.jpg")
    sound.write_bytes(b"<html>")
    predict(folder, "--skip-bad", "--overwrite", model=model, out=out)
    capsys.readouterr()
    said = refused(capsys, folder, "--skip-bad", "--skip-existing", model=model, out=out)
    assert "holds results of several models" in said


def test_results_are_on_the_disk_before_their_names_and_these_in_the_end(
    photos, model, tmp_path, monkeypatch
):
    asked = told(monkeypatch)
    predict(photos, model=model, out=tmp_path / "out")
    labels = sorted((tmp_path / "out").rglob("*.png"))
    places = [asked.index(("rename", path.stat().st_ino, path.name)) for path in labels]
    for path, place in zip(labels, places, strict=True):
        assert ("sync", path.stat().st_ino) in asked[:place]
    assert len(labels) == 3
    assert ("sync", "folder") not in asked[min(places) : max(places)]
    assert asked[max(places) :].count(("sync", "folder")) == len({path.parent for path in labels})
