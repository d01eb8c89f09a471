"""Validation in batches of a similar size, as on a GPU, gives what it gives image by image."""

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.config.run import MachineConfig
from scaseg.data.datasets.folder import FolderDataset
from scaseg.inference.tta import STEP, TestTimeAugmentation
from scaseg.models.segmenter import Segmenter
from scaseg.training import pictures
from scaseg.training.evaluation import evaluate
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train
from tests.scenes import CLASSES, write_scenes
from tests.training.quick import settings

MACHINE = MachineConfig(device="cpu", workers=0)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 28, size=(44, 60))


@pytest.fixture
def spied(monkeypatch):
    """The shape of each batch that a network gets, and whether it was padded."""
    seen, coarse = [], Segmenter.coarse

    def spy(self, images, sizes=None):
        seen.append((*images.shape[::2], images.shape[3], sizes is not None))
        return coarse(self, images, sizes)

    monkeypatch.setattr(Segmenter, "coarse", spy)
    return seen


def in_batches_of(monkeypatch, size):
    monkeypatch.setattr(SegmentationModule, "validation_batch", size)


def network(backbone="tiny", head="pointwise", context="sca"):
    torch.manual_seed(0)
    return scaseg.create_model(backbone, context, head, classes=CLASSES).eval()


NETWORKS = [("tiny", "pointwise", "sca"), ("mobilenet_v2", "pyramid", "object")]


@pytest.mark.parametrize("parts", NETWORKS, ids=["sca", "own_folder"])
@pytest.mark.parametrize("tta", [None, TestTimeAugmentation((0.8, 1.0), flip=True, window=62)])
def test_the_same_as_image_by_image(scenes, monkeypatch, spied, parts, tta):
    model, data = network(*parts), FolderDataset(scenes, "train")
    alone = evaluate(model, data, tta=tta, machine=MACHINE, quiet=True)
    assert {batch for batch, *_, padded in spied if not padded} == {1}
    one_by_one = len(spied)
    spied.clear()
    in_batches_of(monkeypatch, 4)
    found = evaluate(model, data, tta=tta, machine=MACHINE, quiet=True)
    assert len(spied) < one_by_one
    assert max(batch for batch, *_ in spied) == 4
    for _, height, width, padded in spied:
        assert not padded or (height % STEP, width % STEP) == (0, 0)
    # every image once, and the same but for ties
    assert found.confusion.counts.sum(1).equal(alone.confusion.counts.sum(1))
    assert (found.confusion.counts - alone.confusion.counts).abs().sum() <= 4
    losses = (one.calibration.losses for one in (found, alone))
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)


def test_a_training_with_its_pictures(scenes, tmp_path, monkeypatch):
    """In the order of the images, whatever the order of their batches."""
    drawn, sheet = [], pictures.validation_sheet

    def spy(panels, *arguments, **options):
        drawn.append(panels)
        return sheet(panels, *arguments, **options)

    monkeypatch.setattr(pictures, "validation_sheet", spy)
    run = settings(scenes, training__epochs=2, training__pictures=5, training__early_stop=3)
    results = []
    for size in (None, 3):
        in_batches_of(monkeypatch, size)
        results.append(train(run, tmp_path / f"run{size}", quiet=True))
    for one, other in zip(results[0].rows, results[1].rows, strict=True):
        assert other["loss"] == one["loss"]
        assert other["val_loss"] == pytest.approx(one["val_loss"], rel=1e-5)
        assert other["mIoU"] == pytest.approx(one["mIoU"], abs=0.05)
    assert len(drawn) == 4
    for alone, together in zip(drawn[:2], drawn[2:], strict=True):
        assert [panel.name for panel in together] == [panel.name for panel in alone]
        for panel, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(other.image, panel.image)
            assert (other.predicted != panel.predicted).mean() < 0.01


def test_the_image_whose_scores_are_not_finite_is_named(scenes, tmp_path, monkeypatch):
    coarse, name = Segmenter.coarse, FolderDataset(scenes, "train").names[5]

    def spoil(self, images, sizes=None):
        scores, real = coarse(self, images, sizes)
        scores[images.amax((1, 2, 3)) == images.amin((1, 2, 3))] = torch.nan
        return scores, real

    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
        for path in (scenes / folder).iterdir():
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    with Image.open(scenes / "images" / f"{name}.png") as image:
        Image.new("RGB", image.size).save(tmp_path / "images" / f"{name}.png")
    monkeypatch.setattr(Segmenter, "coarse", spoil)
    model = network()
    model.normalize = lambda images: images.float()  # black is one number
    in_batches_of(monkeypatch, 4)
    with pytest.raises(scaseg.WorkError, match=f"evaluating: {name}: model: its scores of this im"):
        evaluate(model, FolderDataset(tmp_path), machine=MACHINE, quiet=True)


def test_fewer_at_once_where_memory_is_short(scenes, monkeypatch):
    """A training whose single images fit must not end in its first validation."""
    tried, coarse = [], Segmenter.coarse

    def short(self, images, sizes=None):
        tried.append(len(images))
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return coarse(self, images, sizes)

    model, data = network(), FolderDataset(scenes, "train")
    alone = evaluate(model, data, machine=MACHINE, quiet=True)
    monkeypatch.setattr(Segmenter, "coarse", short)
    in_batches_of(monkeypatch, 8)
    found = evaluate(model, data, machine=MACHINE, quiet=True)
    assert sum(size > 3 for size in tried) <= 2
    assert sum(1 < size <= 3 for size in tried) >= 1
    assert (found.confusion.counts - alone.confusion.counts).abs().sum() <= 4
