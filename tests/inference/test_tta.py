from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from scaseg import create_model
from scaseg.config.model import ModelConfig
from scaseg.data.sample import Sample, normalize
from scaseg.data.transforms import ResizeToFit, generator
from scaseg.inference.sliding_window import evenly_spaced
from scaseg.inference.tta import TestTimeAugmentation, predict_scores
from scaseg.models.backbones import base
from scaseg.models.segmenter import Segmenter

CLASSES = 3


class Backbone(base.Backbone):
    """Of any reach: 1 looks at single pixels, 3 at their neighbours."""

    def __init__(self, reach, stride):
        super().__init__()
        self.stride = stride
        self.layer = nn.Conv2d(3, 8, reach, padding=reach // 2, stride=stride)

    def forward(self, images, real=None):
        return self.layer(images), real


class NoContext(nn.Module):
    def forward(self, features, mask=None):
        return features


def stub(reach=1, stride=1, fit=None):
    config = ModelConfig(classes=tuple("abc"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.1), fit=fit)
    return Segmenter(
        backbone=Backbone(reach, stride),
        context=NoContext(),
        head=nn.Conv2d(8, CLASSES, 1),
        config=config,
    ).eval()


def photograph(height, width, seed=0):
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.integers(0, 256, (3, height, width), np.uint8))


def smooth_photograph(height, width):
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    waves = [torch.sin(rows / a) + torch.cos(columns / b) for a, b in ((9, 7), (5, 11), (8, 8))]
    return (torch.stack(waves) * 60 + 127).to(torch.uint8)


def assert_probabilities(found, height, width):
    assert found.shape == (CLASSES, height, width)
    assert found.dtype == torch.float32
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(0), torch.ones(height, width))


def normalized(model, image):
    mean, std = torch.tensor(model.config.mean), torch.tensor(model.config.std)
    return normalize(image, mean, std).unsqueeze(0)


@pytest.mark.parametrize("size", [(8, 8), (33, 17), (64, 40)])
def test_one_pass_is_what_the_network_says(size):
    model = create_model("mobilenet_v2", head="compact", classes=CLASSES, hidden=4).eval()
    image = photograph(*size)
    with torch.no_grad():
        expected = model(normalized(model, image))[0].softmax(0)
    found = predict_scores(model, image)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad
    assert_probabilities(found, *size)


WAYS = [
    TestTimeAugmentation(),
    TestTimeAugmentation(flip=True),
    TestTimeAugmentation(scales=(0.5, 1.0, 1.7), flip=True),
    TestTimeAugmentation(window=16, overlap=5),
    TestTimeAugmentation(scales=(0.1, 2.0), flip=True, window=20, overlap=19),
]


@pytest.mark.parametrize("tta", WAYS)
@pytest.mark.parametrize("fit", [None, (24, 24)])
@pytest.mark.parametrize("size", [(1, 1), (1, 50), (37, 1), (7, 7), (31, 53)])
def test_any_size_gives_probabilities_of_its_own_size(size, fit, tta):
    assert_probabilities(predict_scores(stub(3, 2, fit), photograph(*size), tta), *size)


def test_the_image_is_left_as_it_was():
    image = photograph(20, 30)
    before = image.clone()
    predict_scores(stub(3), image, WAYS[2])
    assert torch.equal(image, before)


def seen_sizes(model, image, tta=None):
    sizes = []
    handle = model.context.register_forward_pre_hook(
        lambda _, arguments: sizes.append(tuple(arguments[0].shape))
    )
    predict_scores(model, image, tta)
    handle.remove()
    return [size[-2:] for size in sizes]


@pytest.mark.parametrize(
    ("size", "fit", "tta", "expected"),
    [
        ((30, 40), None, TestTimeAugmentation(), [(30, 40)]),
        ((4, 40), None, TestTimeAugmentation(), [(8, 40)]),
        ((30, 40), (60, 60), TestTimeAugmentation(), [(45, 60)]),
        ((60, 120), (30, 30), TestTimeAugmentation(), [(15, 30)]),
        ((10, 400), (40, 40), TestTimeAugmentation(), [(8, 40)]),
        ((30, 40), None, TestTimeAugmentation(scales=(0.5, 2)), [(15, 20), (60, 80)]),
        ((30, 40), (60, 60), TestTimeAugmentation(scales=(0.5, 2)), [(22, 30), (90, 120)]),
        ((30, 40), None, TestTimeAugmentation(flip=True), [(30, 40), (30, 40)]),
        ((30, 40), None, TestTimeAugmentation(window=40, overlap=8), [(30, 40)]),
        ((30, 40), None, TestTimeAugmentation(window=32, overlap=8), [(30, 32), (30, 32)]),
        ((40, 40), None, TestTimeAugmentation(window=32, overlap=0), [(32, 32)] * 4),
    ],
)
def test_what_the_network_sees(size, fit, tta, expected):
    assert seen_sizes(stub(fit=fit), photograph(*size), tta) == expected


def test_photographs_are_resized_as_in_training():
    """There by Pillow, in whole numbers, before they are normalised."""
    model, image = stub(3, 1, fit=(32, 32)), smooth_photograph(60, 80)
    seen = []
    model.backbone.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    predict_scores(model, image)
    sample = Sample(image.permute(1, 2, 0).numpy().copy(), np.zeros((60, 80), np.int32), "x")
    trained = ResizeToFit(32, 32)(sample, generator(0, 0, 0)).image
    trained = normalized(model, torch.from_numpy(trained).permute(2, 0, 1))[0]
    worst = ((seen[0][0] - trained).abs() * torch.tensor(model.config.std).view(-1, 1, 1)).max()
    assert worst < 1 / 255


@pytest.mark.parametrize("tta", [WAYS[1], WAYS[2], TestTimeAugmentation((1.0, 1.5), True, 24, 8)])
@pytest.mark.parametrize("fit", [None, (40, 40)])
def test_a_mirrored_photograph_has_mirrored_scores(tta, fit):
    model, image = stub(3, 2, fit), photograph(30, 41)
    mirrored = predict_scores(model, image.flip(-1), tta).flip(-1)
    torch.testing.assert_close(mirrored, predict_scores(model, image, tta), rtol=1e-4, atol=1e-5)
    plain = TestTimeAugmentation(tta.scales, False, tta.window, tta.overlap)
    lopsided = predict_scores(model, image.flip(-1), plain).flip(-1) - predict_scores(
        model, image, plain
    )
    assert lopsided.abs().max() > 1e-3  # the network itself is not


def test_scales_and_mirrors_are_averaged():
    model, image = stub(3, 2), photograph(30, 40)
    single = [
        predict_scores(model, image, TestTimeAugmentation((scale,))) for scale in (0.5, 1.0, 2.0)
    ]
    together = predict_scores(model, image, TestTimeAugmentation((0.5, 1.0, 2.0)))
    torch.testing.assert_close(together, torch.stack(single).mean(0))
    assert not torch.allclose(single[0], single[2], atol=1e-3)
    both = predict_scores(model, image, TestTimeAugmentation(flip=True))
    mirrored = predict_scores(model, image.flip(-1)).flip(-1)
    torch.testing.assert_close(both, (single[1] + mirrored) / 2)


@pytest.mark.parametrize("size", [(16, 16), (50, 70), (16, 90), (90, 9)])
@pytest.mark.parametrize(("window", "overlap"), [(16, 0), (16, 15), (24, 7), (64, 63)])
def test_windows_do_not_matter_to_what_looks_at_single_pixels(size, window, overlap):
    model, image = stub(), photograph(*size)
    in_windows = predict_scores(model, image, TestTimeAugmentation(window=window, overlap=overlap))
    torch.testing.assert_close(in_windows, predict_scores(model, image))


def score_of(probability):
    return (probability / (1 - probability)).log()


def test_windows_fade_into_each_other():
    """What differs between two windows changes by small steps, not at a seam."""
    model = stub()

    def by_window(features, mask=None):  # each call says something else
        calls.append(len(calls))
        result = torch.zeros(1, CLASSES, *features.shape[-2:])
        result[:, calls[-1] % 2] = 9.0
        return result

    calls = []
    model.context.forward = by_window
    model.head = nn.Identity()
    found = predict_scores(model, photograph(16, 40), TestTimeAugmentation(window=24, overlap=8))[0]
    assert len(calls) == 2
    assert (found[0, 0], found[0, -1]) == pytest.approx((1, 0), abs=1e-3)
    odds = score_of(found[0])  # blended where the network decides, before softmax
    assert odds.diff().abs().max() < 0.15 * (odds.max() - odds.min())


@given(st.integers(1, 3000), st.integers(16, 600), st.data())
def test_windows_cover_everything_with_the_asked_overlap(length, window, data):
    overlap = data.draw(st.integers(0, window - 1).filter(lambda o: length / (window - o) < 300))
    found = list(evenly_spaced(length, window, overlap))
    assert found[0].start == 0
    assert found[-1].stop == length
    assert {w.stop - w.start for w in found} == {min(window, length)}
    for before, after in pairwise(found):
        assert before.start < after.start
        assert before.stop - after.start >= overlap
    # and not one more than needed
    if len(found) > 1:
        assert (len(found) - 1) * window - (len(found) - 2) * overlap < length


@pytest.mark.parametrize(
    "image",
    [
        torch.zeros(3, 9, 9),
        torch.zeros(1, 3, 9, 9, dtype=torch.uint8),
        torch.zeros(9, 9, 3, dtype=torch.uint8),
        torch.zeros(9, 9, dtype=torch.uint8),
        torch.zeros(9, dtype=torch.uint8),
        torch.zeros(3, 0, 9, dtype=torch.uint8),
    ],
)
def test_what_is_no_photograph_is_refused(image):
    with pytest.raises(ValueError, match=r"image: shape .* and dtype .*; give a path"):
        predict_scores(stub(), image)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scales": ()}, "scales: .*give numbers above 0, up to 8"),
        ({"scales": (1, 0)}, "scales: "),
        ({"scales": (9,)}, "scales: "),
        ({"scales": (float("nan"),)}, "scales: "),
        ({"scales": (1.0, float("nan"))}, "scales: "),
        ({"window": 15}, "window: 15; give at least 16 pixels"),
        ({"window": 32, "overlap": 32}, "overlap: 32 of a window of 32; give 0 to window - 1"),
        ({"window": 32, "overlap": -1}, "overlap: -1"),
    ],
)
def test_ways_to_look_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        TestTimeAugmentation(**options)
