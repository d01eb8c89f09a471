"""scaseg predict: from files to files, and never a torn one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.cli import main
from scaseg.data.decode.image import read_image, read_labels
from scaseg.errors import UserError, WorkError
from scaseg.inference import pipeline
from scaseg.inference.tta import SCALES, TestTimeAugmentation
from tests.inference.command import CLASSES, predict, refused, written
from tests.inference.models import picture


def test_a_folder_with_all_below_it(photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos, model=model, out=out)
    assert written(out) == ["a/b/three.png", "a/two.png", "one.png"]
    loaded = scaseg.load_model(model)
    for name, source in (
        ("one", "one.jpg"),
        ("a/two", "a/two.png"),
        ("a/b/three", "a/b/three.JPG"),
    ):
        labels = read_labels(out / f"{name}.png")
        expected = loaded.predict(photos / source).labels
        np.testing.assert_array_equal(labels, expected)
        assert labels.shape == read_image(photos / source).shape[:2]
    said = capsys.readouterr()
    assert "3 images segmented" in said.out
    assert "images/s" in said.out
    assert said.err == ""


def test_everything_that_can_be_written(photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos / "one.jpg", "--overlay", "--scores", "--json", "--quiet", model=model, out=out)
    assert written(out) == ["one.json", "one.npz", "one.overlay.jpg", "one.png"]
    assert capsys.readouterr() == ("", "")
    labels = read_labels(out / "one.png")
    with np.load(out / "one.npz") as scores:
        assert scores["scores"].shape == (30, 41, 3)
        assert scores["scores"].dtype == np.float16
        assert scores["classes"].tolist() == list(CLASSES)
        expected = scaseg.load_model(model).predict(photos / "one.jpg", scores=True).scores
        np.testing.assert_allclose(scores["scores"].transpose(2, 0, 1), expected, atol=1e-3)
    found = json.loads((out / "one.json").read_text())
    assert (found["width"], found["height"]) == (41, 30)
    assert found["image"].endswith("one.jpg")
    for place, name in enumerate(CLASSES):
        assert found["areas"][name] == pytest.approx((labels == place).mean())
    with Image.open(out / "one.overlay.jpg") as overlay:
        assert overlay.height > 30


def test_from_python(photos, model, tmp_path, monkeypatch, capsys):
    """predict_folder does all that the command does; it prints nothing, and tells its callers."""
    heard, out = [], tmp_path / "out"
    monkeypatch.setattr("scaseg.inference.pipeline.pixel_size", None)  # one is opened once
    tally = scaseg.predict_folder(model, photos / "one.jpg", out, overlay=True, device="cpu")
    monkeypatch.undo()
    assert (tally.predicted, tally.existing, tally.bad) == (1, 0, 0)
    with pytest.raises(UserError, match=r"one.overlay.jpg: exists already; use --skip-existing"):
        scaseg.predict_folder(model, [str(photos)], out, overlay=True, device="cpu")
    (photos / "zebra.jpg").write_text("hello")
    tally = scaseg.predict_folder(
        *(model, photos, out),
        device="cpu",
        skip_existing=True,
        skip_bad=True,
        on_bad=lambda error: heard.append(Path(error.place).name),
        on_done=lambda tally, total: heard.append((tally.predicted, total)),
    )
    assert (tally.predicted, tally.existing, tally.bad) == (2, 1, 1)
    assert sorted(map(str, heard)) == ["(1, 3)", "(2, 3)", "zebra.jpg"]
    with pytest.raises(WorkError, match=r"zebra.jpg: not an image.*; --skip-bad goes on without"):
        scaseg.predict_folder(model, photos, tmp_path / "other", device="cpu")
    with pytest.raises(UserError, match=r"--precision: 'fp8'; .*give one of 32, bf16, 16"):
        scaseg.predict_folder(model, photos, tmp_path / "none", precision="fp8")
    with pytest.raises(UserError, match=r"--shard: \(3, 2\); give \(I, N\)"):
        scaseg.predict_folder(model, photos, tmp_path / "none", shard=(3, 2))
    assert not (tmp_path / "none").exists()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("cores", [1, 3])
def test_on_several_cores(photos, model, tmp_path, monkeypatch, cores):
    used, stream = [], pipeline.predict_stream

    def noted(*given, cores, **options):
        used.append(cores)
        return stream(*given, cores=cores, **options)

    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr(pipeline, "predict_stream", noted)
    predict(photos, "--json", "--tta", model=model, out=tmp_path / "out")
    predict(photos / "one.jpg", model=model, out=tmp_path / "one")  # as many files as that: none
    assert used == [cores, 1]
    loaded, tta = scaseg.load_model(model), TestTimeAugmentation(scales=SCALES, flip=True)
    for name, source in (("one", "one.jpg"), ("a/two", "a/two.png")):
        expected = loaded.predict(photos / source, tta=tta).labels
        np.testing.assert_array_equal(read_labels(tmp_path / "out" / f"{name}.png"), expected)


@pytest.mark.parametrize(("free", "cores"), [(None, 16), (1 << 40, 16), (1 << 32, 8), (9, 1)])
def test_no_more_cores_than_memory_allows(model, tmp_path, monkeypatch, free, cores):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr("scaseg.system.available_memory", lambda device: free)
    found = pipeline.Pipeline(pipeline.Settings(Path(model), tmp_path, device="cpu"))
    assert found.cores == cores


def test_files_and_patterns(photos, model, tmp_path):
    predict(photos / "one.jpg", photos / "a" / "two.png", model=model, out=tmp_path / "files")
    assert written(tmp_path / "files") == ["one.png", "two.png"]
    predict(f"{photos}/a/*", model=model, out=tmp_path / "pattern")
    assert written(tmp_path / "pattern") == ["two.png"]
    predict(f"{photos}/**/*", model=model, out=tmp_path / "deep")
    assert written(tmp_path / "deep") == ["a/b/three.png", "a/two.png", "one.png"]


def test_ways_to_look(photos, model, tmp_path):
    """Each way gives what the library gives, whatever the batch."""
    loaded = scaseg.load_model(model)
    ways = {
        "--tta": TestTimeAugmentation((0.75, 1.0, 1.25), True),
        "--window 24 --overlap 8": TestTimeAugmentation(window=24, overlap=8),
        "--window 24 --context-scope image --batch-size 2": TestTimeAugmentation(
            window=24, overlap=12, context_scope="image"
        ),
        "--precision bf16 --batch-size 3": None,
    }
    for place, (options, tta) in enumerate(ways.items()):
        out = tmp_path / str(place)
        predict(photos, *options.split(), model=model, out=out)
        precision = "bf16" if "bf16" in options else "32"
        expected = loaded.predict(photos / "one.jpg", tta=tta, precision=precision)
        same = read_labels(out / "one.png") == expected.labels
        assert same.mean() > (0.9 if precision == "bf16" else 0.999)


def test_shards_divide_the_work(model, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    names = [f"photo{index:02}" for index in range(12)]
    for name in names:
        Image.fromarray(picture(9, 9)).save(photos / f"{name}.png")
    shares = []
    for share in (1, 2, 3):
        out = tmp_path / f"out{share}"
        predict(photos, "--shard", f"{share}/3", model=model, out=out)
        shares.append({Path(name).stem for name in written(out)})
    assert set.union(*shares) == set(names)
    assert sum(map(len, shares)) == 12
    assert all(len(share) < 12 for share in shares)
    # a further photograph moves none of the others
    Image.fromarray(picture(9, 9)).save(photos / "aaa.png")
    predict(photos, "--shard", "1/3", model=model, out=tmp_path / "again")
    assert {Path(name).stem for name in written(tmp_path / "again")} - {"aaa"} == shares[0]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/3/4"])
def test_shards_that_make_no_sense(text, photos, model, tmp_path, capsys):
    said = refused(capsys, photos, f"--shard={text}", model=model, out=tmp_path / "out")
    assert "--shard: " in said
    assert "give I/N with I from 1 to N" in said


def test_what_is_there_is_kept(photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "two.png").write_bytes(b"mine")
    said = refused(capsys, photos, model=model, out=out)
    assert "two.png: exists already; use --skip-existing to continue, --overwrite" in said
    assert written(out) == ["a/two.png"]
    predict(photos, "--skip-existing", model=model, out=out)
    assert (out / "a" / "two.png").read_bytes() == b"mine"
    assert written(out) == ["a/b/three.png", "a/two.png", "one.png"]
    assert "2 images segmented" in (summary := capsys.readouterr().out)
    assert "1 existed already" in summary
    said = refused(capsys, photos, "--overwrite", model=model, out=out)
    assert "two.png: was not made by scaseg; only results are replaced" in said
    (out / "a" / "two.png").unlink()
    for _ in range(2):
        predict(photos, "--overwrite", model=model, out=out)
    assert read_labels(out / "a" / "two.png").shape == (31, 41)
    said = refused(capsys, photos, "--overwrite", "--skip-existing", model=model, out=out)
    assert "give one of the two" in said


def test_results_of_another_kind_are_not_taken_for_done(photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    predict(photos, "--quiet", model=model, out=out)
    said = refused(capsys, photos, "--skip-existing", "--json", model=model, out=out)
    assert "is there, but" in said
    assert "made without that option" in said


def test_two_photographs_of_one_name_are_refused(photos, model, tmp_path, capsys):
    Image.fromarray(picture(9, 9)).save(photos / "one.png")
    out = tmp_path / "out"
    said = refused(capsys, photos, model=model, out=out)
    assert "one.png: would be" in said
    assert f"one.png, and so would {photos / 'one.jpg'}; rename one" in said
    assert not out.exists()
    said = refused(capsys, photos / "a", photos / "a" / "two.png", model=model, out=out)
    assert "two.png: would be" in said
    (photos / "one.png").rename(photos / "one.overlay.png")
    predict(photos, model=model, out=tmp_path / "plain")
    said = refused(capsys, photos, "--overlay", model=model, out=out)
    assert "one.overlay.png, and so would" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder; give images"),
        (["photos/*.bmp"], "matches no image; quote patterns"),
        (["empty"], "empty: holds no images; files .jpg"),
        (["photos", "--window", "9"], "--window: 9; give at least 16"),
        (["photos", "--window", "32", "--overlap", "32"], "--overlap: 32 of"),
        (["photos", "--device", "cuda"], "--device: cuda is not available"),
        (["photos", "--workers", "0"], "--workers: '0'; give a whole number >= 1"),
    ],
)
def test_bad_input_writes_nothing(arguments, message, photos, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["predict", *arguments, "--model", model, "--out", "out"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not Path("out").exists()


def test_a_context_that_cannot_be_gathered(photos, tmp_path, capsys):
    made = scaseg.create_model("tiny", "dot", "pointwise", classes=2)
    made.save_pretrained(tmp_path / "dot")
    options = ("--window", "16", "--context-scope", "image")
    said = refused(capsys, photos, *options, model=str(tmp_path / "dot"), out=tmp_path / "out")
    assert "context_scope: image does not work for a model with DotContext; use window" in said
    assert not (tmp_path / "out").exists()


def test_places_that_results_must_not_go_to(photos, model, tmp_path, capsys):
    assert "is the folder of the images itself" in refused(capsys, photos, model=model, out=photos)
    (tmp_path / "file").write_text("")
    assert "file: is a file; give a folder" in refused(
        capsys, photos, model=model, out=tmp_path / "file"
    )
    # a folder of results that leads somewhere else
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    said = refused(capsys, photos, model=model, out=tmp_path / "out", code=1)
    assert "a link out of" in said
    assert written(tmp_path / "elsewhere") == []


def test_results_below_the_photographs_are_no_photographs(photos, model, capsys):
    for _ in range(2):
        predict(photos, "--skip-existing", model=model, out=photos / "predicted")
    assert written(photos / "predicted") == ["a/b/three.png", "a/two.png", "one.png"]
    assert "3 existed already" in capsys.readouterr().out


def test_a_pattern_does_not_find_its_own_results(photos, model):
    predict(f"{photos}/**/*.png", model=model, out=photos / "labels")
    assert written(photos / "labels") == ["a/two.png"]
    predict(f"{photos}/**/*.png", "--overwrite", model=model, out=photos / "labels")
    assert written(photos / "labels") == ["a/two.png"]


def test_pictures_of_other_kinds_are_named(photos, model, tmp_path, capsys):
    for name in ("a.HEIC", "b.gif", "c.gif", "notes.md"):
        (photos / "a" / name).touch()
    predict(photos, model=model, out=tmp_path / "out")
    said = f"{photos / 'a'}: 3 pictures left out (.gif, .heic); save them as JPEG\n"
    assert capsys.readouterr().err.count(said) == 1


def test_results_do_not_go_among_the_photographs(photos, model, capsys):
    said = refused(capsys, photos / "one.jpg", "--overwrite", model=model, out=photos)
    assert f"--out: is the folder of the image {photos / 'one.jpg'} itself; give another" in said
    said = refused(capsys, f"{photos}/*.jpg", "--overwrite", model=model, out=photos)
    assert f"--out: {photos} holds all images that {photos}/*.jpg matches; give another" in said
    assert not (photos / "one.png").exists()


def test_a_photograph_is_never_replaced_by_its_labels(photos, model, capsys):
    before = (photos / "a" / "two.png").read_bytes()
    for argument in (photos / "a" / "two.png", f"{photos}/a/*.png"):
        for option in ("--overwrite", "--skip-existing"):
            said = refused(capsys, argument, option, model=model, out=photos / "a")
            assert "would replace the image" in said or "holds all images that" in said
    assert (photos / "a" / "two.png").read_bytes() == before


def test_a_run_that_was_cut_off_has_a_model(photos, model, tmp_path):
    best = tmp_path / "run" / "checkpoints" / "best"
    best.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (best / name).write_bytes((Path(model) / name).read_bytes())
    predict(photos / "one.jpg", model=str(tmp_path / "run"), out=tmp_path / "out")
    assert written(tmp_path / "out") == ["one.png"]


def test_what_means_nothing_without_windows(photos, model, tmp_path, capsys):
    for option, value in (("--overlap", "32"), ("--context-scope", "image")):
        said = refused(capsys, photos, option, value, model=model, out=tmp_path / "out")
        assert f"{option}: {value}, but there are no windows; add --window 512" in said
    assert not (tmp_path / "out").exists()


def test_one_window_for_a_model_that_fits_its_photographs(photos, tmp_path, capsys):
    made = scaseg.create_model("tiny", head="pointwise", classes=CLASSES, hidden=4)
    made.config = replace(made.config, fit=(24, 32))
    made.save_pretrained(tmp_path / "fitted")
    where = {"model": str(tmp_path / "fitted")}
    predict(photos / "one.jpg", "--window", "32", out=tmp_path / "one", **where)
    assert "fitted into 24 x 32, as in its training: one window" in capsys.readouterr().err
    predict(photos / "one.jpg", "--window", "16", out=tmp_path / "many", **where)
    assert "note:" not in capsys.readouterr().err
