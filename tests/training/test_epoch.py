"""What an epoch leaves behind: validation loss, pictures, the same in TensorBoard."""

import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.data.datasets.folder import FolderDataset
from scaseg.io.table import read_rows
from scaseg.training import pictures
from scaseg.training.pictures import ValidationPictures
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training.quick import settings


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 16, size=(32, 40))


def test_the_validation_loss_is_that_of_the_training(scenes, tmp_path, capsys):
    """By hand: weighted cross-entropy of each image at its own size, the mean over images."""
    run = settings(scenes, training__epochs=1, training__class_weights="inverse")
    result = train(run, tmp_path / "run")
    (row,) = read_rows(tmp_path / "run" / "metrics.csv")
    pixels = np.zeros(3)
    for sample in FolderDataset(scenes, "train"):
        pixels += np.bincount(sample.labels[sample.labels != 255], minlength=3)
    weights = torch.tensor(pixels.sum() / (3 * pixels))
    losses = []
    for sample in FolderDataset(scenes, "val"):
        p = torch.tensor(result.model.predict(sample.image, scores=True).scores).double()
        p = (p.log() * result.model.config.temperature).softmax(0)  # not calibrated
        labels = torch.tensor(sample.labels).long()
        loss = torch.nn.CrossEntropyLoss(weights, ignore_index=255)
        losses.append(float(loss(p.log()[None], labels[None])))
    assert float(row["val_loss"]) == pytest.approx(np.mean(losses), rel=1e-4)
    head, line = capsys.readouterr().err.splitlines()[-2:]
    assert head.split()[:3] == ["epoch", "loss", "val"]
    assert line.split()[2] == f"{float(row['val_loss']):.4f}"
    assert max(len(head), len(line)) <= 60


@pytest.mark.parametrize("loss", ["focal", "dice", "ohem"])
def test_every_loss_can_be_validated(scenes, tmp_path, loss):
    keys = {"data__limit": 4, "training__loss": loss, "training__pictures": 0}
    train(settings(scenes, training__epochs=1, **keys), tmp_path / "run", quiet=True)
    (row,) = read_rows(tmp_path / "run" / "metrics.csv")
    assert 0 < float(row["val_loss"]) < 5
    assert not (tmp_path / "run" / "validation.jpg").exists()
    assert not (tmp_path / "run" / "data.html").exists()


def test_the_same_images_are_drawn_after_each_epoch(scenes, tmp_path, monkeypatch):
    """And logged; what is drawn is what was counted."""
    drawn = []
    sheet = pictures.validation_sheet

    def spy(panels, *arguments, **options):
        drawn.append((panels, options["title"]))
        return sheet(panels, *arguments, **options)

    monkeypatch.setattr(pictures, "validation_sheet", spy)
    keys = {"training__pictures": 3, "training__loggers": "tensorboard", "data__limit": 4}
    result = train(settings(scenes, training__epochs=2, **keys), tmp_path / "run", quiet=True)
    names = [[panel.name for panel in panels] for panels, _ in drawn]
    assert names == [["scene00", "scene01", "scene02"]] * 2  # of the four of val, 0, 1 and 2
    for (_, title), row in zip(drawn, result.rows, strict=True):
        assert f"epoch {row['epoch']}, " in title
        assert f"mIoU {row['mIoU']:.1f}, loss {row['val_loss']:.4f}" in title
    by_name = {sample.name: sample for sample in FolderDataset(scenes, "val")}
    for panel in drawn[-1][0]:
        sample = by_name[panel.name]
        np.testing.assert_array_equal(panel.image, sample.image)
        np.testing.assert_array_equal(panel.labels, sample.labels)
    with Image.open(tmp_path / "run" / "validation.jpg") as picture:
        assert (picture.format, picture.width) == ("JPEG", 1440)
    assert not list((tmp_path / "run").glob(".scaseg-*"))

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    logged = [scalar.value for scalar in events.Scalars("val/loss")]
    assert logged == pytest.approx([row["val_loss"] for row in result.rows], rel=1e-5)
    assert [image.width for image in events.Images("val/predictions")] == [1440, 1440]


@pytest.mark.parametrize(
    ("images", "count", "chosen"), [(3, 6, {0, 1, 2}), (100, 4, {0, 25, 50, 75}), (7, 1, {0})]
)
def test_the_choice_is_spread_over_all(tmp_path, images, count, chosen):
    assert ValidationPictures(tmp_path, images=images, count=count).chosen == chosen


def test_a_run_from_before_goes_on_without_its_losses(scenes, tmp_path):
    """Its metrics.csv has no such column; the new rows have it."""
    run, out = settings(scenes, training__epochs=1, data__limit=4), tmp_path / "run"
    train(run, out, quiet=True)
    head, line = (row.split(",") for row in (out / "metrics.csv").read_text().splitlines())
    place = head.index("val_loss")
    old = [",".join(row[:place] + row[place + 1 :]) for row in (head, line)]
    (out / "metrics.csv").write_text("\n".join(old) + "\n")
    train(None, out, resume=True, overrides={"training.epochs": 2}, quiet=True)
    first, second = read_rows(out / "metrics.csv")
    assert first["val_loss"] == ""
    assert float(second["val_loss"]) > 0
