import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaseg.config.run import AugmentConfig
from scaseg.data.sample import Sample, collate, normalize
from scaseg.data.transforms import (
    ColorJitter,
    Compose,
    Custom,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    ResizeToFit,
    build_transforms,
    generator,
)

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.2, 0.1)


def picture(height=24, width=36):
    """Labels can be read off the pixels, wherever a transform takes them."""
    labels = np.add.outer(np.arange(height) // 8, np.arange(width) // 12).astype(np.int32)
    image = np.repeat((labels * 20).astype(np.uint8)[..., None], 3, axis=2)
    return Sample(image, labels, "picture")


def fitted(sample, height, width):
    """The paper's 448 x 448: resized to fit, then padded."""
    chain = Compose([ResizeToFit(height, width), Pad(height, width)])
    return chain(sample, generator(0, 0, 0))


def agreement(sample):
    height, width = sample.real_size
    pixels = sample.image[:height, :width, 0].astype(int)
    labels = sample.labels[:height, :width]
    return np.mean(np.abs(pixels - labels * 20) <= 2)


PIPELINES = [
    [RandomHorizontalFlip()],
    [RandomResize(0.5, 2.0)],
    [RandomCrop(16, 20)],
    [RandomCrop(40, 50)],
    [ResizeToFit(30, 30), Pad(30, 30)],
    [RandomHorizontalFlip(), RandomResize(), RandomCrop(32, 32)],
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_labels_stay_with_their_pixels(pipeline):
    for index in range(20):
        sample = Compose(pipeline)(picture(), generator(0, 0, index))
        assert sample.image.shape[:2] == sample.labels.shape
        assert agreement(sample) > 0.75  # but for filtered edges
        height, width = sample.real_size
        assert (sample.labels[height:] == 255).all()
        assert (sample.labels[:, width:] == 255).all()
        assert (sample.labels[:height, :width] != 255).all()


@pytest.mark.parametrize("pipeline", [*PIPELINES, [ColorJitter()]])
def test_reproducible_and_different(pipeline):
    def outcome(*key):
        sample = Compose(pipeline)(picture(), generator(*key))
        return sample.image.tobytes() + sample.labels.tobytes()

    assert outcome(1, 2, 3) == outcome(1, 2, 3)
    if any(isinstance(transform, ResizeToFit) for transform in pipeline):
        return
    for keys in (
        [(s, 0, 0) for s in range(20)],
        [(0, e, 0) for e in range(20)],
        [(0, 0, i) for i in range(20)],
    ):
        if pipeline == [RandomCrop(40, 50)]:
            continue  # everything fits: nothing is random
        assert len({outcome(*key) for key in keys}) > 1


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.integers(1, 60))
def test_the_papers_fit_keeps_proportions(height, width, target_height, target_width):
    sample = fitted(picture(height, width), target_height, target_width)
    assert sample.labels.shape == (target_height, target_width)
    rows, columns = sample.real_size
    assert rows == target_height or columns == target_width or max(rows, columns) <= 8
    factor = min(target_height / height, target_width / width)
    assert abs(rows - height * factor) <= 0.51 or rows == min(8, target_height)
    assert abs(columns - width * factor) <= 0.51 or columns == min(8, target_width)


def test_a_callable_of_the_users_own():
    def mirror(image, mask):
        return {"image": image[:, ::-1], "mask": mask[:, ::-1]}

    sample = Custom(mirror)(picture(), generator(0, 0, 0))
    assert agreement(sample) == 1
    with pytest.raises(ValueError, match="picture: the transform made an image of"):
        Custom(lambda image, mask: {"image": image[:3], "mask": mask})(
            picture(), generator(0, 0, 0)
        )


def test_what_must_come_before_padding_says_so():
    padded = fitted(picture(), 50, 50)
    with pytest.raises(ValueError, match="resize after padding; pad last"):
        RandomResize()(padded, generator(0, 0, 0))
    with pytest.raises(ValueError, match="picture: RandomHorizontalFlip after padding; pad last"):
        RandomHorizontalFlip(1.0)(padded, generator(0, 0, 0))


def test_normalised_padding_is_zero_and_batches_know_their_sizes():
    padded = normalize(fitted(picture(), 40, 40), MEAN, STD)
    plain = normalize(picture(16, 50), MEAN, STD)
    batch = collate([padded, plain])
    assert batch.images.shape == (2, 3, 32, 50)  # 27 rows in steps of 16
    assert batch.sizes.tolist() == [[27, 40], [16, 50]]
    for image, labels, (height, width) in zip(
        batch.images, batch.labels, batch.sizes.tolist(), strict=True
    ):
        assert (image[:, height:] == 0).all()
        assert (image[:, :, width:] == 0).all()
        assert (labels[height:] == 255).all()
        assert (labels[:, width:] == 255).all()
    expected = (torch.tensor(20 / 255) - 0.5) / 0.2  # class 1, first channel
    torch.testing.assert_close(plain.image[0, 0, 12], expected)


def test_a_batch_goes_through_the_network():
    from scaseg import create_model

    model = create_model("mobilenet_v2", head="compact", classes=4, hidden=8).eval()
    examples = [
        normalize(picture(*size), model.config.mean, model.config.std)
        for size in ((24, 36), (40, 33))
    ]
    batch = collate(examples)
    with torch.no_grad():
        together = model(batch.images, batch.sizes)
        alone = model(examples[0].image.unsqueeze(0))
    torch.testing.assert_close(together[:1, :, :24, :36], alone, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_batched_says_what_to_do():
    with pytest.raises(ValueError, match="collate: a Sample; normalize it first"):
        collate([picture()])
    with pytest.raises(ValueError, match="picture: 3 channels, but mean and std have 1 and 1"):
        normalize(picture(), (0.5,), (0.2,))


def test_what_is_padding_in_all_images_of_a_batch_is_cut_off():
    examples = [
        normalize(fitted(picture(*size), 96, 96), MEAN, STD) for size in ((40, 90), (50, 96))
    ]
    batch = collate(examples)
    assert batch.sizes.tolist() == [[43, 96], [50, 96]]
    assert batch.images.shape == (2, 3, 64, 96)  # 50 in steps of 16
    assert batch.labels.shape == (2, 64, 96)
    for example, image, labels in zip(examples, batch.images, batch.labels, strict=True):
        assert torch.equal(image, example.image[:, :64])
        assert torch.equal(labels, example.labels[:64])
        assert (example.labels[64:] == 255).all()
    upright = normalize(fitted(picture(90, 40), 96, 96), MEAN, STD)
    assert collate([examples[0], upright]).images.shape == (2, 3, 96, 96)
    assert collate([normalize(picture(21, 50), MEAN, STD)]).images.shape == (1, 3, 21, 50)


def kinds(**options):
    return [type(transform).__name__ for transform in build_transforms(AugmentConfig(**options))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["RandomHorizontalFlip"]),
        ({"flip": 0}, []),
        ({"contrast": 0.1}, ["RandomHorizontalFlip", "ColorJitter"]),
        ({"fit": (32, 32)}, ["RandomHorizontalFlip", "ResizeToFit", "Pad"]),
        ({"crop": (32, 32)}, ["RandomHorizontalFlip", "RandomCrop"]),
        ({"scale": (0.5, 2)}, ["RandomHorizontalFlip", "RandomResize"]),
        (
            {"fit": (32, 32), "scale": (0.5, 2)},
            ["RandomHorizontalFlip", "ResizeToFit", "RandomResize"],
        ),
        (
            {"fit": (32, 32), "crop": (16, 16)},
            ["RandomHorizontalFlip", "ResizeToFit", "RandomCrop"],
        ),
        (
            {"brightness": 1, "fit": (32, 32), "scale": (0.5, 2), "crop": (16, 16)},
            ["RandomHorizontalFlip", "ColorJitter", "ResizeToFit", "RandomResize", "RandomCrop"],
        ),
    ],
)
def test_transforms_come_in_the_order_of_the_recipe(options, expected):
    assert kinds(**options) == expected


def test_transforms_get_what_the_recipe_says():
    config = AugmentConfig(
        flip=0.25,
        brightness=0.1,
        contrast=0.2,
        saturation=0.3,
        fit=(30, 40),
        scale=(0.5, 3),
        crop=(9, 10),
    )
    flip, jitter, fit, scale, crop = build_transforms(config)
    assert flip.p == 0.25
    assert (jitter.brightness, jitter.contrast, jitter.saturation) == (0.1, 0.2, 0.3)
    assert (fit.height, fit.width) == (30, 40)
    assert (scale.low, scale.high) == (0.5, 3)
    assert (crop.height, crop.width) == (9, 10)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"fit": (32, 40)}, (32, 40)),
        ({"crop": (24, 16)}, (24, 16)),
        ({"fit": (32, 40), "crop": (24, 48)}, (24, 48)),
        ({"scale": (0.5, 2), "crop": (24, 16)}, (24, 16)),
        ({"fit": (32, 40), "scale": (0.5, 2), "crop": (24, 16)}, (24, 16)),
    ],
)
def test_samples_have_one_size_where_fit_or_crop_says_which(options, size):
    chain = build_transforms(AugmentConfig(saturation=0.5, **options))
    for index, (height, width) in enumerate([(20, 30), (30, 20), (90, 64), (32, 40), (11, 70)]):
        sample = Sample(
            np.zeros((height, width, 3), np.uint8), np.zeros((height, width), np.int32), "x"
        )
        done = Compose(chain)(sample, generator(0, 0, index))
        assert done.image.shape[:2] == done.labels.shape == size
        images = collate([normalize(done, (0.5,) * 3, (0.2,) * 3)]).images
        real = done.real_size  # nothing of it is lost, and little padding is left
        for whole, side, own in zip(size, images.shape[2:], real, strict=True):
            assert side == min(whole, -(-own // 16) * 16)
