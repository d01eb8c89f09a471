"""Hue, blur, rotation, CutMix and ClassMix: labels go with their pixels, padding stays."""

import numpy as np
import pytest

from scaseg.config.run import AugmentConfig
from scaseg.data.augmentations import ClassMix, CutMix, RandomBlur, RandomHue, RandomRotation
from scaseg.data.loading import TrainingDataset
from scaseg.data.sample import IGNORE, Sample
from scaseg.data.transforms import Pad, build_mixtures, build_transforms, generator
from scaseg.errors import UserError


def blocks(height=40, width=60, *, first=0, bands=3, dtype=np.uint8):
    """Four rectangles, whose pixels say which class they are: 10 (class + 1)."""
    rows, columns = np.mgrid[:height, :width]
    labels = (first + 2 * (rows >= height // 2) + (columns >= width // 2)).astype(np.int32)
    image = np.repeat(10 * (labels + 1)[:, :, None], bands, axis=2).astype(dtype)
    return Sample(image, labels, f"blocks{first}")


@pytest.mark.parametrize(("bands", "dtype"), [(3, np.uint8), (5, np.float32), (4, np.uint8)])
def test_labels_rotate_with_their_pixels(bands, dtype):
    turned = RandomRotation(30)(blocks(bands=bands, dtype=dtype), generator(3, 0, 0))
    assert turned.image.shape == (40, 60, bands)
    assert turned.image.dtype == dtype
    outside = turned.labels == IGNORE
    assert 0.02 < outside.mean() < 0.4
    assert set(np.unique(turned.labels)) == {0, 1, 2, 3, IGNORE}  # none in between
    expected = 10.0 * (turned.labels + 1)
    agree = np.abs(turned.image[..., -1] - expected) <= 1
    assert agree[~outside].mean() > 0.9  # all but the edges, where pixels are blended
    corner = turned.image[outside]
    assert (corner == 0).mean() > 0.8


def test_padding_is_not_rotated():
    with pytest.raises(UserError, match="RandomRotation after padding; pad last"):
        RandomRotation(5)(Pad(64, 64)(blocks(), generator(0, 0, 0)), generator(0, 0, 0))


def test_hue_keeps_grey_and_brightness():
    gray = blocks()
    assert (RandomHue(0.5)(gray, generator(0, 0, 0)).image == gray.image).all()
    color = np.full((4, 4, 3), (90, 120, 110), np.uint8)
    turned = RandomHue(0.3)(Sample(color, np.zeros((4, 4), np.int32), "a"), generator(3, 0, 0))
    weights = np.array([0.299, 0.587, 0.114])
    assert abs(float(turned.image[0, 0] @ weights - color[0, 0] @ weights)) < 1
    assert (turned.image != color).any()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_blur_keeps_the_mean_and_the_type(dtype):
    sample = blocks(dtype=dtype)
    blurred = RandomBlur(3)(sample, generator(0, 0, 0))
    assert blurred.image.dtype == dtype
    assert (blurred.labels == sample.labels).all()
    assert blurred.image.std() < sample.image.std()
    assert abs(float(blurred.image.mean()) - float(sample.image.mean())) < 0.5


def test_cutmix_puts_in_a_rectangle_of_the_other_with_its_labels():
    sample, donor = blocks(40, 60), blocks(50, 44, first=4)
    mixed = CutMix()(sample, donor, generator(2, 0, 0))
    new = mixed.labels >= 4
    rows, columns = np.flatnonzero(new.any(1)), np.flatnonzero(new.any(0))
    assert new.sum() == len(rows) * len(columns) > 0  # one rectangle
    assert new[:, 44:].sum() == 0  # the other has no more
    assert (mixed.image[..., 0] == 10 * (mixed.labels + 1)).all()
    assert (sample.labels < 4).all()  # the samples themselves stay
    shares = [(CutMix()(sample, donor, generator(0, 0, i)).labels >= 4).mean() for i in range(200)]
    assert 0.3 < np.mean(shares) / (40 * 44 / (40 * 60)) < 0.7


def test_classmix_puts_in_half_of_the_classes():
    donor = blocks(first=4)
    donor.labels[:2] = IGNORE
    mixed = ClassMix()(blocks(), donor, generator(0, 0, 0))
    new = np.setdiff1d(mixed.labels[mixed.labels >= 4], IGNORE)
    assert len(new) == 2
    for one in new:
        assert ((mixed.labels == one) == (donor.labels == one)).all()
    assert (mixed.image[..., 0] == 10 * (mixed.labels + 1)).all()
    donor.labels[:] = IGNORE
    assert (ClassMix()(blocks(), donor, generator(0, 0, 0)).labels == blocks().labels).all()


def test_padding_is_never_mixed():
    padded, small = (
        Pad(64, 64)(blocks(*size), generator(0, 0, 0)) for size in ((40, 60), (64, 20))
    )
    for index in range(20):
        mixed = CutMix()(padded, small, generator(0, 0, index))
        assert (mixed.labels[40:] == IGNORE).all()
        assert (mixed.labels[:, 20:60][:40] != IGNORE).all()
        assert mixed.size == (40, 60)


class Samples(list):
    def neighbours(self, index):
        return range(len(self))


def test_examples_are_a_function_of_seed_epoch_and_index():
    config = AugmentConfig(
        hue=0.1, blur=1, rotate=20, scale=(0.8, 1.2), crop=(32, 32), cutmix=0.7, classmix=0.7
    )
    samples = Samples(blocks(first=4 * index) for index in range(3))

    def examples(seed, **more):
        return TrainingDataset(samples, build_transforms(config), seed=seed, **more)

    mixtures = build_mixtures(config)
    first, again = (examples(7, mixtures=mixtures) for _ in range(2))
    again[0, 0]  # what was drawn before does not matter
    for key in ((0, 1), (5, 2)):
        assert (first[key].image == again[key].image).all()
        assert (first[key].labels == again[key].labels).all()
    assert (first[0, 1].image != first[1, 1].image).any()
    assert (first[0, 1].image != examples(8, mixtures=mixtures)[0, 1].image).any()
    seen = {int(v) // 4 for e in range(30) for v in first[e, 0].labels.unique() if v != IGNORE}
    assert seen == {0, 1, 2}  # parts of the others come in
    assert not build_mixtures(AugmentConfig())
