"""scaseg compare with real trainings: comparisons that go on, settings that do not mix."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.comparison.jobs import Job, parse_variant
from scaseg.comparison.judged import judged
from scaseg.comparison.statistics import OCCLUSION, SELECTIVITY
from scaseg.config.recipe import load_recipe
from scaseg.io.table import read_rows, write_rows
from tests.scenes import SMALL, write_scenes

MEASURES = (*SELECTIVITY, *OCCLUSION)
LIGHT = (*SMALL, "--device", "cpu", "--workers", "0", "--jobs", "2")


def test_variants_have_options_of_their_own():
    assert parse_variant("sca:pair_channels=4:activation=exp") == (
        "sca",
        {"pair_channels": 4, "activation": "exp"},
    )
    for text in ("gat", "sca:pair_channels"):
        with pytest.raises(ValueError, match="--contexts: "):
            parse_variant(text)


def test_each_variant_has_a_folder_of_its_own():
    """A job that finds another's finished run would take its model for its own."""
    usual = Job("sca:pair_channels=4", 0).run_folder("out")
    assert usual == Path("out/runs/sca_pair_channels_4-seed0")
    variants = ("m:A:bins=[1,2]", "m:A:bins=[[1],2]", "m:A:bins={1: 2}", "gr\u00fc:A", "gr\u00f6:A")
    assert len({Job(one, 0).run_folder("out") for one in variants}) == 5


def test_a_comparison_goes_on_where_it_was(tmp_path, capsys):
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(40, 48)), tmp_path / "out"
    common = ["compare", "--data", str(scenes), "--out", str(out), *LIGHT, "--epochs", "1"]
    main([*common, "--contexts", "none,sca", "--seeds", "1", "--quiet"])
    first = capsys.readouterr()
    assert first.err == ""
    assert first.out == (out / "table.md").read_text()
    _, maps = first.out.split("| context | entropy of a map |")
    assert 0.5 < float(maps.split("| sca | ")[1].split(" |")[0]) <= 1
    assert "| none |" not in maps  # it has no maps
    assert "difference of drops |" in maps
    assert "n/a" not in maps
    before = (out / "results.csv").read_text()
    # not known to an earlier version
    newer = ("split", "fold", "side_by_side", *MEASURES)
    known = read_rows(out / "results.csv")
    older = [{name: row[name] for name in row if name not in newer} for row in known]
    write_rows(out / "results.csv", older)
    main([*common, "--contexts", "none,sca", "--seeds", "1", "--quiet"])
    assert capsys.readouterr().out == first.out
    again = read_rows(out / "results.csv")
    for row, own in zip(again, known, strict=True):
        assert set(row) | {"side_by_side"} == set(own)
        for name in (*MEASURES, "mIoU"):  # measured in another process: the last digits may differ
            assert (row[name] == "") == (own[name] == "")
            assert float(row[name] or 0) == pytest.approx(float(own[name] or 0), abs=1e-4)
        assert row["split"] == own["split"]
    write_rows(out / "results.csv", known)
    assert (out / "results.csv").read_text() == before
    main([*common, "--contexts", "none,sca", "--seeds", "2"])
    assert "4 of 4: " in capsys.readouterr().err
    after = (out / "results.csv").read_text()
    assert after.startswith(before)
    with (out / "results.csv").open(newline="") as file:
        found = [(line["variant"], line["seed"]) for line in csv.DictReader(file)]
    assert sorted(found) == [("none", "0"), ("none", "1"), ("sca", "0"), ("sca", "1")]
    assert {path.name for path in out.iterdir()} == {
        *("recipe.yaml", "results.csv", "table.md", "table.csv", "compare.png", "runs")
    }
    main([*common, "--contexts", "none,sca", "--seeds", "2", "--split", "train", "--quiet"])
    judged = (out / "results.csv").read_text()  # no training again, and no number of before
    assert judged.count("the split train") == 4
    with pytest.raises(SystemExit) as stop:
        main([*common, "--epochs", "2", "--contexts", "none"])
    assert stop.value.code == 2
    assert "a comparison with other settings (training.epochs is 1)" in capsys.readouterr().err


def test_it_is_said_which_images_the_scores_are_of(tmp_path, capsys):
    """Without a list of test images those held out, or even those of the training."""
    scenes = write_scenes(tmp_path / "scenes", 2, size=(40, 48), lists=False)
    common = ["compare", "--data", str(scenes), *LIGHT, "--epochs", "1"]
    common += ["--contexts", "none", "--seeds", "1", "--data.hold_out"]
    for share, images in [
        ("0.5", "1 image: 1 of 2 training images held out"),
        ("0", "2 images: all images, those of the training among them"),
    ]:
        main([*common, share, "--out", str(tmp_path / share)])
        out, err = capsys.readouterr()
        assert f"Mean ± standard error over seeds. Evaluated on {images}." in out
        assert f"1 of 1 trainings to do, 1 at once\nevaluated on {images}\n" in err


def test_rows_of_other_label_maps_are_not_mixed_in(tmp_path, capsys):
    """Labels corrected in place: what is finished would stand beside what is not."""
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(40, 48)), tmp_path / "out"
    common = ["compare", "--data", str(scenes), "--out", str(out), *LIGHT, "--epochs", "1"]
    common += ["--contexts", "none", "--seeds", "1", "--quiet"]
    main(common)
    for name, said in [
        ("scene11", "label maps have changed since none, seed 0 was trained"),
        ("scene03", "label maps of the split test have changed since none, seed 0 was evaluated"),
    ]:
        path = scenes / "labels" / f"{name}.png"
        before, labels = path.read_bytes(), np.array(Image.open(path))
        labels[5, 5] = (labels[5, 5] + 1) % 3
        Image.fromarray(labels).save(path)
        with pytest.raises(SystemExit):
            main(common)
        assert said in capsys.readouterr().err
        path.write_bytes(before)
    main(common)


def test_what_rows_are_of_is_known_without_measuring_bands(tmp_path, monkeypatch):
    """It was measured anew for every job, from a thousand images twice."""
    scenes = write_scenes(tmp_path, 4, size=(40, 48))
    for path in (scenes / "images").iterdir():
        Image.open(path).convert("L").save(path)
    monkeypatch.setattr("scaseg.training.data.band_statistics", None)
    data = {"data.root": str(scenes), "data.bands": "1", "data.val": "null"}
    assert judged(load_recipe(None, data), "train").trained_labels
