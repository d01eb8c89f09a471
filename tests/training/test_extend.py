"""A run is resumed with another number of epochs: the schedule goes on as one of that length."""

import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.config.recipe import load_recipe
from scaseg.training.module import poly_factor
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training.quick import settings


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 8, size=(32, 40))


def extend(folder, epochs):
    said = []
    keys = {"training.epochs": epochs}
    return train(None, folder, resume=True, overrides=keys, quiet=True, log=said.append), said


def test_a_finished_run_goes_on(scenes, tmp_path):
    """Two steps an epoch; 2 epochs become 4, and the rate rises to where 4 epochs have it."""
    run, out = settings(scenes, training__epochs=2), tmp_path / "run"
    first = train(run, out, quiet=True)
    assert first.rows[-1]["lr"] == 0
    found, said = extend(out, 4)
    assert (
        "2 -> 4 epochs: the schedule goes on where a run of 4 would be, lr 0.0e+00 -> 5.4e-04"
        in (said)
    )
    assert [int(row["epoch"]) for row in found.rows] == [1, 2, 3, 4]
    for row, step in zip(found.rows[2:], (6, 8), strict=True):
        assert row["lr"] == pytest.approx(1e-3 * poly_factor(step, 8, power=0.9), abs=1e-12)
    assert load_recipe(out / "recipe.yaml").training.epochs == 4
    weights = [one.model.head.fc6.weight for one in (first, found)]
    assert not torch.equal(*weights)
    _, said = extend(out, 4)
    assert said == [f"{out}: this run is finished"]
    with pytest.raises(ValueError, match=r"training\.epochs: 3, but 4 are done or under way"):
        extend(out, 3)
    said = []
    with pytest.raises(ValueError, match="under way"):
        train(None, out, resume=True, overrides={"training.epochs": 3}, log=said.append)
    assert said == []  # refused before anything is said of a start


def test_the_first_step_has_the_rate_of_the_new_length(scenes, tmp_path, monkeypatch):
    """Not the last of the old schedule, which is 0."""
    from scaseg.training.module import SegmentationModule

    rates, out = [], tmp_path / "run"
    train(settings(scenes, training__epochs=1), out, quiet=True)
    step = SegmentationModule.training_step

    def spy(self, batch, index):
        rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return step(self, batch, index)

    monkeypatch.setattr(SegmentationModule, "training_step", spy)
    extend(out, 2)
    assert rates == [1e-3 * poly_factor(done, 4, power=0.9) for done in (2, 3)]


def test_an_extended_run_that_was_cut_off_goes_on_by_itself(scenes, tmp_path, monkeypatch):
    """The old model stays until the new one is there, and is not taken for the end."""
    from scaseg.training.callbacks import MetricsTable

    out = tmp_path / "run"
    train(settings(scenes, training__epochs=1), out, quiet=True)
    before = (out / "model" / "model.safetensors").read_bytes()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MetricsTable, "on_train_epoch_start", stop)
        with pytest.raises(KeyboardInterrupt):
            extend(out, 3)
    assert (out / "model" / "model.safetensors").read_bytes() == before
    found = train(None, out, resume=True, quiet=True)
    assert len(found.rows) == 3
    whole = tmp_path / "whole"
    train(settings(scenes, training__epochs=1), whole, quiet=True)
    expected, _ = extend(whole, 3)
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(tensor, found.model.state_dict()[name]), name


def test_a_run_that_stopped_early_gets_new_patience(scenes, tmp_path):
    keys = {"training__lr": 0, "training__head_lr": 0, "training__batch_norm": "frozen"}
    run = settings(scenes, training__epochs=5, training__early_stop=2, **keys)
    out = tmp_path / "run"
    assert len(train(run, out, quiet=True).rows) == 3
    found, _ = extend(out, 6)
    assert len(found.rows) == 5  # two more without progress


def test_without_its_state_a_run_cannot_go_on(scenes, tmp_path):
    out = tmp_path / "run"
    train(settings(scenes, training__epochs=1), out, quiet=True)
    for state in (out / "checkpoints").glob("*.safetensors"):
        state.unlink()
    with pytest.raises(ValueError, match=r"has no training state to go on from; .* --start-from"):
        extend(out, 2)


def test_a_run_goes_on_with_as_many_images_as_it_began_with(tmp_path):
    """Its order and its schedule are of those; images that came or went since passed unseen."""
    scenes, out = write_scenes(tmp_path / "scenes", 8, size=(32, 40)), tmp_path / "run"
    train(settings(scenes, training__epochs=1), out, quiet=True)
    listed = (scenes / "train.txt").read_text()
    (scenes / "train.txt").write_text(listed.partition("\n")[2])
    with pytest.raises(ValueError, match=r"--data: 3 training images, and 4 when the run began"):
        extend(out, 2)
    (scenes / "train.txt").write_text(listed)
    assert len(extend(out, 2)[0].rows) == 2


def test_a_run_says_that_labels_have_changed_since_it_began(tmp_path):
    scenes, out = write_scenes(tmp_path / "scenes", 8, size=(32, 40)), tmp_path / "run"
    train(settings(scenes, training__epochs=1), out, quiet=True)
    assert not [line for line in extend(out, 2)[1] if "label maps" in line]
    path = scenes / "labels" / "scene07.png"
    labels = np.array(Image.open(path))
    labels[5, 5] = (labels[5, 5] + 1) % 3
    Image.fromarray(labels).save(path)
    (said,) = [line for line in extend(out, 3)[1] if "label maps" in line]
    assert said.startswith("note: label maps have changed since the run began")
