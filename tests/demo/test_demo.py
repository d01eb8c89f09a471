"""The demo in small: the same commands, fewer scenes; and what it says when something is wrong."""

import base64
import json
import re
from io import BytesIO

import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.config.recipe import load_recipe
from scaseg.demo.report import Row, table
from scaseg.demo.run import demo_run, model_folder, run_demo
from scaseg.errors import WorkError


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    main(["demo", "--out", str(folder), "--epochs", "1", "--images", "32", "--quiet"])
    return folder


def test_three_models_are_judged(demo):
    found = json.loads((demo / "demo.json").read_text(encoding="utf-8"))
    assert [row["context"] for row in found["contexts"]] == ["none", "average", "sca"]
    assert all(0 < row["scores"]["mIoU"] < 100 for row in found["contexts"])
    assert found["selectivity"]["rank_correlation"]["mean"] == pytest.approx(1, abs=1e-6)
    for name in ("none", "average", "sca"):
        assert (model_folder(demo, name) / "model" / "model.safetensors").is_file()


def test_scenes_and_predictions_lie_there_to_be_tried(demo, tmp_path):
    scenes = sorted(path.name for path in (demo / "scenes").iterdir())
    assert scenes == sorted(path.name for path in (demo / "predictions").iterdir())
    assert len(scenes) == 12
    scene, model, out = demo / "scenes" / scenes[0], model_folder(demo, "sca"), tmp_path / "why.png"
    main(["explain", str(scene), "--model", str(model), "--point", "64,72", "--out", str(out)])
    assert out.is_file()


def test_the_page_needs_no_network(demo):
    page = (demo / "report.html").read_text(encoding="utf-8")
    assert "$" not in page  # every place is filled
    for source in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert source.startswith("data:image/png;base64,")
        Image.open(BytesIO(base64.b64decode(source.partition(",")[2]))).verify()
    assert page.count("<tr") == 4
    with Image.open(demo / "picture.png") as picture:
        assert picture.width > 1000


def test_a_demo_is_replaced_and_nothing_else(demo, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(demo)])
    assert stop.value.code == 2
    assert "holds a demo already; use --overwrite" in capsys.readouterr().err
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(tmp_path), "--overwrite"])
    assert stop.value.code == 2
    assert "holds thesis.tex, and no demo; give another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_training_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("scaseg.comparison.queue.WORKER", "tests.comparison.fake_job")
    monkeypatch.setenv("FAKE_JOB", '{"fail": ["none"]}')
    with pytest.raises(WorkError, match=r"training: none, seed 0: epoch 1, step 3: no such luck"):
        run_demo(tmp_path, epochs=1, images=8, bars=False)


def test_the_demo_is_its_recipe_shortened():
    recipe, run = load_recipe("context_scenes_global"), demo_run()
    assert run.model == recipe.model
    assert run.augment == recipe.augment
    for name in ("optimizer", "lr", "head_lr", "weight_decay", "batch_size", "warmup", "loss"):
        assert getattr(run.training, name) == getattr(recipe.training, name)


def test_the_table_fits_a_terminal():
    scores = {"PPA": 99.94, "CAA": 8.0, "mIoU": 7.5}
    rows = [Row(name, scores, 3.2, 97_979, 305.2) for name in ("average", "sca")]
    assert max(map(len, table(rows).splitlines())) <= 80
    assert table(rows).splitlines()[2].split() == [
        *("sca", "99.9", "8.0", "7.5", "3.2", "97,979", "305", "s")
    ]
