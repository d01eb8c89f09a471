import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaseg.config.run import AugmentConfig
from scaseg.data.sample import Sample, as_example, collate, normalize
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


def test_padding_is_zero_and_batches_know_their_sizes():
    padded = as_example(fitted(picture(), 40, 40))
    plain = as_example(picture(16, 50))
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
    assert (batch.images.dtype, batch.labels.dtype) == (torch.uint8, torch.uint8)
    found = normalize(batch.images, torch.tensor(MEAN), torch.tensor(STD))
    expected = (torch.tensor(20 / 255) - 0.5) / 0.2  # class 1, first channel
    torch.testing.assert_close(found[1, 0, 0, 12], expected)


def normalized_alone(sample):
    """As each image was before batches were normalized at once; padding is not looked at."""
    image = torch.from_numpy(sample.image.copy()).permute(2, 0, 1).float() / 255
    return (image - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)


def test_a_batch_is_normalized_to_the_bits_of_single_images():
    random = np.random.default_rng(0)
    samples = []
    for size in ((24, 36), (17, 40)):
        image = random.integers(0, 256, (*size, 3), np.uint8)
        samples.append(Sample(image[:, ::-1], np.zeros(size, np.int32), "x"))
    batch = collate([as_example(sample) for sample in samples])
    found = normalize(batch.images.contiguous(), torch.tensor(MEAN), torch.tensor(STD))
    assert found.is_contiguous()  # another layout would round other sums in the network
    for image, sample, (height, width) in zip(found, samples, batch.sizes.tolist(), strict=True):
        assert torch.equal(image[:, :height, :width], normalized_alone(sample))


def test_labels_and_pixels_of_more_than_8_bits_stay_whole():
    wide = picture()
    wide.labels[0, 0] = 300
    assert collate([as_example(picture()), as_example(wide)]).labels[1, 0, 0] == 300
    bands = Sample(np.full((24, 36, 3), 1000.5, np.float32), picture().labels, "bands")
    assert collate([as_example(bands)]).images.unique().tolist() == [1000.5]
    both = collate([as_example(bands), as_example(picture())]).images  # one fault among photographs
    torch.testing.assert_close(both[1, 0], torch.from_numpy(picture().image[:, :, 0]) / 255)


def test_images_of_one_size_have_no_padding():
    """Cut to their size, so that no layer needs a mask; others come in few sizes."""
    alike = [as_example(fitted(picture(40, 90), 96, 96)) for _ in range(2)]
    batch = collate(alike)
    assert batch.sizes.tolist() == [[43, 96], [43, 96]]
    assert batch.images.shape == (2, 3, 43, 96)
    assert collate(alike[:1]).images.shape == (1, 3, 48, 96)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_jitter_to_the_bits_of_its_formula(mirrored, dtype):
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (33, 47, 3)).astype(dtype)[:, :: -1 if mirrored else 1]
    for index in range(5):
        draws = generator(0, 0, index)
        bright, contrast, saturation = (draws.uniform(0.8, 1.2) for _ in range(3))
        pixels = image.astype(np.float32) * bright
        pixels = pixels.mean() + (pixels - pixels.mean()) * contrast
        gray = pixels.mean(axis=2, keepdims=True)
        pixels = gray + (pixels - gray) * saturation
        if dtype == np.uint8:
            pixels = np.clip(pixels.round(), 0, 255).astype(np.uint8)
        found = ColorJitter()(
            Sample(image, np.zeros((33, 47), np.int32), "x"), generator(0, 0, index)
        )
        np.testing.assert_array_equal(found.image, pixels)


def test_a_batch_goes_through_the_network():
    from scaseg import create_model

    model = create_model("mobilenet_v2", head="compact", classes=4, hidden=8).eval()
    batch = collate([as_example(picture(*size)) for size in ((24, 36), (40, 33))])
    with torch.no_grad():
        together = model(model.normalize(batch.images), batch.sizes)
        alone = model(model.normalize(as_example(picture(24, 36)).image.unsqueeze(0)))
    torch.testing.assert_close(together[:1, :, :24, :36], alone, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_batched_says_what_to_do():
    with pytest.raises(ValueError, match="collate: a Sample; make it an example first"):
        collate([picture()])
    with pytest.raises(ValueError, match="images: 3 channels, but mean and std have 1 and 1"):
        normalize(torch.zeros(3, 4, 4), torch.zeros(1), torch.ones(1))


def test_what_is_padding_in_all_images_of_a_batch_is_cut_off():
    examples = [as_example(fitted(picture(*size), 96, 96)) for size in ((40, 90), (50, 96))]
    batch = collate(examples)
    assert batch.sizes.tolist() == [[43, 96], [50, 96]]
    assert batch.images.shape == (2, 3, 64, 96)  # 50 in steps of 16
    assert batch.labels.shape == (2, 64, 96)
    for example, image, labels in zip(examples, batch.images, batch.labels, strict=True):
        assert torch.equal(image, example.image[:, :64])
        assert torch.equal(labels, example.labels[:64])
        assert (example.labels[64:] == 255).all()
    upright = as_example(fitted(picture(90, 40), 96, 96))
    assert collate([examples[0], upright]).images.shape == (2, 3, 96, 96)
    assert collate([as_example(picture(21, 50))]).images.shape == (1, 3, 21, 50)


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
        images = collate([as_example(done)]).images
        real = done.real_size  # nothing of it is lost, and little padding is left
        for whole, side, own in zip(size, images.shape[2:], real, strict=True):
            assert side == min(whole, -(-own // 16) * 16)
