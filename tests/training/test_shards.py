"""Training from shards: resumed bit for bit, wherever they come from."""

import fsspec
import pytest
import torch

import scaseg
from scaseg.cli import main
from scaseg.config.recipe import load_recipe
from scaseg.errors import UserError
from scaseg.training.callbacks import LastCheckpoint
from tests.scenes import write_scenes
from tests.training.quick import TINY


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_scenes(folder / "scenes", size=(24, 30))
    main(["data", "prepare", "folder", str(folder / "scenes"), str(folder / "tar"),
          "--shards", "3", "--quiet"])  # fmt: skip
    files = fsspec.filesystem("memory")
    for path in (folder / "tar").iterdir():
        files.pipe(f"/training/{path.name}", path.read_bytes())
    yield "memory://training"
    files.rm("/training", recursive=True)


def run(root, tmp_path, **keys):
    more = {key.replace("__", "."): str(value) for key, value in keys.items()}
    settings = {"data.name": "shards", "data.root": root, "data.cache_dir": str(tmp_path / "cache")}
    settings |= {"training.epochs": "2", "data.shuffle_buffer": "4", "augment.cutmix": "0.5"}
    return load_recipe(None, {**TINY, **settings, **more})


def test_a_run_that_was_cut_off_goes_on_to_the_same_weights(root, tmp_path, monkeypatch):
    whole = scaseg.train(run(root, tmp_path), tmp_path / "whole", quiet=True)
    stop_after = 4  # of six steps: in the second epoch
    ended = LastCheckpoint.on_train_batch_end

    def end(self, trainer, module, *more):
        ended(self, trainer, module, *more)
        if trainer.global_step == stop_after:
            raise KeyboardInterrupt

    cut = run(root, tmp_path, training__checkpoint_minutes=0)
    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_batch_end", end)
        with pytest.raises(KeyboardInterrupt):
            scaseg.train(cut, tmp_path / "cut", quiet=True)
    resumed = scaseg.train(None, tmp_path / "cut", resume=True, quiet=True)
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, whole.model.state_dict()[name]), name


@pytest.mark.parametrize("workers", [0, 2])
def test_any_number_of_loaders_gives_the_same_weights(root, tmp_path, workers):
    local = str(tmp_path / "here")
    fsspec.filesystem("memory").get("/training", local, recursive=True)
    keys = {"machine__workers": workers, "data__cache_dir": "null"}
    elsewhere = scaseg.train(run(root, tmp_path), None, quiet=True)
    here = scaseg.train(run(local, tmp_path, **keys), None, quiet=True)
    for name, tensor in here.model.state_dict().items():
        assert torch.equal(tensor, elsewhere.model.state_dict()[name]), name


def test_evaluate_reads_the_shards_of_the_training(root, tmp_path, capsys):
    result = scaseg.train(run(root, tmp_path), tmp_path / "run", quiet=True)
    assert result.model.config.classes == ("brick", "leaf", "water")
    found = scaseg.evaluate(tmp_path / "run", split="val")
    best = result.rows[result.best_epoch - 1]
    assert found.scores.mean_iou == pytest.approx(best["mIoU"] / 100)
    assert found.images == 3
    assert "3 images: the split val" in capsys.readouterr().err


def test_a_place_elsewhere_is_read_as_shards_alone(root, tmp_path):
    with pytest.raises(UserError, match=r"--data: memory://training is not on this machine; re"):
        scaseg.train(run(root, tmp_path, data__name="folder"), None, quiet=True)
    with pytest.raises(UserError, match=r"data.folds: given with shards"):
        scaseg.train(run(root, tmp_path, data__folds=2, data__fold=1), None, quiet=True)
