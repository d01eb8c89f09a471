"""What loaders plan and the device computes is what loaders compute, to rounding."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from scaseg.config.run import AugmentConfig
from scaseg.data.device_augmentation import augment, collate_planned, plan, split_chain
from scaseg.data.loading import EpochBatchSampler, SamplerState, TrainingDataset
from scaseg.data.sample import Sample, by_band, collate
from scaseg.data.transforms import Pad, RandomHorizontalFlip, ResizeToFit, build_transforms
from scaseg.errors import UserError
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training import quick

SIZES = ((60, 80), (83, 61), (40, 97), (25, 13))
COLOR = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3}
# the augmentation, and how many of 256 levels a pixel may differ
CHAINS = [
    ({}, 0),  # mirrored
    (COLOR, 1),
    ({"hue": 0.1}, 1),
    ({"crop": (48, 64)}, 0),
    ({"fit": (50, 50)}, 1),
    ({"scale": (0.4, 2.0)}, 1),
    ({"scale": (0.5, 2.0), "crop": (56, 56)}, 1),
    # resized twice, by loaders with 8 bits in between
    ({**COLOR, "hue": 0.1, "fit": (96, 96), "scale": (0.75, 1.5), "crop": (72, 72)}, 2),
    ({"fit": (50, 50), "fill": "mirror"}, 1),
    # the smallest is mirrored five times over
    ({"crop": (72, 72), "fill": "mirror"}, 0),
    ({**COLOR, "fit": (96, 96), "scale": (0.5, 1.5), "crop": (80, 80), "fill": "mirror"}, 2),
    ({**COLOR, "rotate": 20.0, "blur": 1.0, "scale": (0.5, 2.0), "crop": (56, 56)}, 1),
]


class Photographs:
    """Smooth ones, each of a size of its own."""

    def __init__(self, bands=3, dtype=np.uint8, first_label=0):
        self.bands, self.dtype, self.first_label = bands, dtype, first_label

    def __len__(self):
        return 2 * len(SIZES)

    def __getitem__(self, index):
        height, width = SIZES[index % len(SIZES)]
        random = np.random.default_rng(index)
        small = random.integers(0, 256, (height // 4, width // 4, self.bands), np.uint8)
        image = by_band(lambda one: one.resize((width, height), Image.Resampling.BICUBIC), small)
        labels = self.first_label + random.integers(0, 9, (height, width))
        return Sample(image.astype(self.dtype), labels.astype(np.int32), f"{index}")


def both(config, device="cpu", epoch=3, **photographs):
    """A batch as loaders compute it, and as the device does."""
    examples = TrainingDataset(Photographs(**photographs), build_transforms(config), seed=1)
    planned = TrainingDataset(examples.samples, examples.transforms, seed=1, plans=True)
    keys = [(epoch, index) for index in range(len(examples))]
    expected = collate([examples[key] for key in keys])
    return expected, augment(collate_planned([planned[key] for key in keys]), device)


def assert_alike(expected, found, levels):
    assert found.names == expected.names
    assert torch.equal(found.sizes, expected.sizes)
    assert torch.equal(found.labels.cpu(), expected.labels)
    assert found.labels.dtype == expected.labels.dtype
    assert found.images.dtype == expected.images.dtype
    assert found.images.stride() == expected.images.stride()
    off = (found.images.cpu().float() - expected.images.float()).abs()
    assert off.max() <= levels
    assert (off > 0).float().mean() <= (0.4 if levels == 2 else 0.03)


@pytest.mark.parametrize(("chain", "levels"), CHAINS)
def test_the_device_makes_what_loaders_make(chain, levels):
    assert_alike(*both(AugmentConfig(**chain)), levels)


def test_a_mirror_leaves_no_padding():
    """All pixels count, and batches have one size: no layer needs a mask."""
    config = AugmentConfig(fit=(96, 96), scale=(0.3, 0.9), crop=(80, 80), fill="mirror")
    masked = AugmentConfig(fit=(96, 96), scale=(0.3, 0.9), crop=(80, 80))
    for found, padded in zip(both(config), both(masked), strict=True):
        assert found.images.shape[-2:] == (80, 80)
        assert (found.sizes == 80).all()
        assert found.labels.max() < 9
        for place, (rows, columns) in enumerate(padded.sizes.tolist()):  # the rest is the same
            window = np.s_[place, ..., :rows, :columns]
            assert torch.equal(found.images[window], padded.images[window])
            assert torch.equal(found.labels[window], padded.labels[window])


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_bands_of_floats(bands):
    config = AugmentConfig(
        brightness=0.2, contrast=0.2, fit=(90, 90), scale=(0.5, 2), crop=(64, 64)
    )
    expected, found = both(config, bands=bands, dtype=np.float32)
    torch.testing.assert_close(found.images, expected.images, rtol=0, atol=1e-3)  # of 255
    assert torch.equal(found.labels, expected.labels)


def test_labels_above_255():
    expected, found = both(AugmentConfig(scale=(0.5, 2), crop=(64, 64)), first_label=1000)
    assert_alike(expected, found, 1)
    assert found.labels.max() > 1000


def test_large_photographs_are_fitted_by_loaders(monkeypatch):
    """Sent whole, a batch of 12 megapixels each would take 300 MB, and ten wait in memory."""
    sizes = [(60, 80), (400, 600), (83, 61), (300, 200)]
    monkeypatch.setattr("tests.data.test_device_augmentation.SIZES", sizes)
    chain = {**COLOR, "hue": 0.1, "fit": (96, 96), "scale": (0.75, 1.5), "crop": (72, 72)}
    assert_alike(*both(AugmentConfig(**chain)), 2)
    planned = TrainingDataset(
        Photographs(), build_transforms(AugmentConfig(**chain)), seed=1, plans=True
    )
    assert all(planned[0, index].window.labels.numel() < 8 * 96 * 96 for index in range(4))


def test_only_what_the_crop_reads_is_sent():
    chain = build_transforms(AugmentConfig(scale=(2, 2), crop=(20, 20)))
    for epoch in range(5):
        planned = TrainingDataset(Photographs(), chain, seed=0, plans=True)[epoch, 1]
        assert max(planned.window.labels.shape) <= 13  # half of 20, and a pixel around


def test_the_rest_of_a_chain_is_the_devices():
    chain = build_transforms(AugmentConfig(**CHAINS[-1][0]))
    first, rest = split_chain(chain)
    assert first + rest == chain
    assert [type(one).__name__ for one in rest] == ["RandomResize", "RandomCrop"]
    fit, flip = ResizeToFit(), RandomHorizontalFlip()
    assert split_chain([fit, flip]) == ([fit], [flip])  # not in the device's order
    assert split_chain([fit, fit]) == ([fit], [fit])
    assert split_chain([flip, lambda sample, random: sample])[1] == []


def test_padding_is_not_resized():
    sample, random = Photographs()[3], np.random.default_rng(0)
    with pytest.raises(UserError, match="after padding; pad last"):
        plan(Pad(99, 99)(sample, random), [ResizeToFit()], random)


def test_loaders_in_processes_plan_the_same():
    chain = build_transforms(AugmentConfig(**CHAINS[-2][0]))
    examples = TrainingDataset(Photographs(), chain, seed=1, plans=True)
    sampler = EpochBatchSampler(8, 3, seed=1, state=lambda: SamplerState(2, 0, 1))

    def images(workers):
        loader = DataLoader(
            examples, batch_sampler=sampler, collate_fn=collate_planned, num_workers=workers
        )
        return [augment(batch, "cpu").images for batch in loader]

    assert all(torch.equal(a, b) for a, b in zip(images(0), images(2), strict=True))


def test_a_training_whose_device_augments(tmp_path):
    """The same run to rounding; without colours and sizes, bit for bit."""
    scenes = write_scenes(tmp_path / "scenes", 12, size=(32, 40))
    losses = []
    for place in ("loader", "device"):
        run = quick.settings(scenes, training__epochs=2, machine__augment=place)
        losses.append([row["loss"] for row in train(run, None, quiet=True).rows])
    assert losses[0] == losses[1]
    more = {"augment__scale": "[0.5, 2]", "augment__crop": "[32, 32]", "augment__contrast": 0.2}
    for place in ("loader", "device"):
        run = quick.settings(scenes, training__epochs=2, machine__augment=place, **more)
        losses.append([row["loss"] for row in train(run, None, quiet=True).rows])
    assert losses[2] == pytest.approx(losses[3], rel=0.01)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"augment__cutmix": 0.5}, "device, but cutmix and classmix are the loaders'"),
        ({"augment__flip": 0}, "nothing of this run's augmentation is the device's"),
    ],
)
def test_a_device_that_cannot(tmp_path, keys, problem):
    scenes = write_scenes(tmp_path / "scenes", 8, size=(32, 40))
    with pytest.raises(UserError, match=f"--machine.augment: .*{problem}; give auto"):
        train(quick.settings(scenes, machine__augment="device", **keys), None, quiet=True)
    train(quick.settings(scenes, training__epochs=1, **keys), None, quiet=True)
