"""Each loss against loops over pixels in NumPy, written from its definition; class weights."""

import math

import numpy as np
import pytest
import torch

from scaseg.losses import (
    LOSSES,
    cross_entropy,
    dice,
    focal,
    inverse_class_weights,
    lovasz,
    ohem,
    paper_class_weights,
)
from scaseg.metrics import ConfusionMatrix

CLASSES = 4
WEIGHTS = [1.0, 0.5, 0.0, 8.0]
each_loss = pytest.mark.parametrize("name", LOSSES)


def draw(seed=0, *, unlabelled=0.3, size=(2, 5, 6), scale=2.0, classes=CLASSES):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, size)
    labels[random.random(size) < unlabelled] = 255
    scores = scale * random.standard_normal((size[0], classes, *size[1:]))
    return torch.tensor(scores, dtype=torch.float32), torch.tensor(labels)


def pixels(scores, labels, weights):
    """(p of every class, true class, its weight) of each labelled pixel."""
    scores, labels = scores.double().numpy(), labels.numpy()
    for b, row, column in np.ndindex(labels.shape):
        true = labels[b, row, column]
        if true != 255:
            e = np.exp(scores[b, :, row, column])
            yield e / e.sum(), true, 1.0 if weights is None else weights[true]


def mean(costs_and_weights):
    costs_and_weights = list(costs_and_weights)
    total = sum(weight for _, weight in costs_and_weights)
    return sum(cost * weight for cost, weight in costs_and_weights) / total if total else 0.0


def naive_cross_entropy(scores, labels, weights):
    return mean((-math.log(p[true]), w) for p, true, w in pixels(scores, labels, weights))


def naive_focal(scores, labels, weights, gamma=2.0):
    return mean(
        (-((1 - p[true]) ** gamma) * math.log(p[true]), w)
        for p, true, w in pixels(scores, labels, weights)
    )


def naive_dice(scores, labels, weights, cross_entropy_share=0.5):
    known = list(pixels(scores, labels, weights))
    overlaps = []
    for k in range(scores.shape[1]):
        truth = sum(true == k for _, true, _ in known)
        if truth:
            both = sum(p[k] for p, true, _ in known if true == k)
            guessed = sum(p[k] for p, _, _ in known)
            weight = 1.0 if weights is None else weights[k]
            overlaps.append((1 - 2 * both / (guessed + truth), weight))
    smooth = naive_cross_entropy(scores, labels, weights)
    return (1 - cross_entropy_share) * mean(overlaps) + cross_entropy_share * smooth


def naive_ohem(scores, labels, weights, threshold=0.7, keep=0.1):
    known = sorted(pixels(scores, labels, weights), key=lambda pixel: pixel[0][pixel[1]])
    least = max(1, math.ceil(keep * len(known)))
    return mean(
        (-math.log(p[true]), w)
        for place, (p, true, w) in enumerate(known)
        if place < least or p[true] <= threshold
    )


def naive_lovasz(scores, labels, weights, cross_entropy_share=0.5):
    """The definition: errors of a class, largest first, times what each takes from its IoU."""
    known = list(pixels(scores[..., ::4, ::4], labels[:, ::4, ::4], weights))
    total = missing = 0.0
    for index in {true for _, true, _ in known}:
        errors = sorted((abs((t == index) - p[index]), t == index) for p, t, _ in known)[::-1]
        members = sum(is_member for _, is_member in errors)
        cost = before = 0.0
        for count in range(1, len(errors) + 1):
            wrong = [is_member for _, is_member in errors[:count]]
            lost = 1 - (members - sum(wrong)) / (members + wrong.count(False))  # 1 - IoU
            cost, before = cost + errors[count - 1][0] * (lost - before), lost
        weight = 1.0 if weights is None else weights[index]
        total, missing = total + weight, missing + weight * cost
    smooth = naive_cross_entropy(scores, labels, weights)
    missing = missing / total if total else 0.0
    return (1 - cross_entropy_share) * missing + cross_entropy_share * smooth


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("unlabelled", [0.0, 0.3, 0.95])
@pytest.mark.parametrize(
    ("loss", "naive", "options"),
    [
        (cross_entropy, naive_cross_entropy, {}),
        (focal, naive_focal, {}),
        (focal, naive_focal, {"gamma": 0.5}),
        (focal, naive_focal, {"gamma": 5}),
        (dice, naive_dice, {}),
        (dice, naive_dice, {"cross_entropy_share": 0}),
        (dice, naive_dice, {"cross_entropy_share": 1.0}),
        (ohem, naive_ohem, {}),
        (ohem, naive_ohem, {"threshold": 0.2, "keep": 0.5}),
        (ohem, naive_ohem, {"threshold": 0.0, "keep": 0.0}),
        (ohem, naive_ohem, {"threshold": 1.0}),
        (lovasz, naive_lovasz, {}),
        (lovasz, naive_lovasz, {"cross_entropy_share": 0}),
    ],
)
def test_equal_to_loops_over_pixels(loss, naive, options, unlabelled, weights):
    for seed in range(5):
        scores, labels = draw(seed, unlabelled=unlabelled)
        scores.requires_grad_()
        given = None if weights is None else torch.tensor(weights)
        found = loss(scores, labels, given, **options)
        assert found.shape == ()
        expected = naive(scores.detach(), labels, weights, **options)
        assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
        found.backward()
        assert scores.grad.isfinite().all()
        assert (scores.grad.movedim(1, -1)[labels == 255] == 0).all()


@each_loss
def test_gradients_are_slopes(name):
    scores, labels = draw(3, size=(1, 3, 3))
    scores.requires_grad_()
    weights = torch.tensor(WEIGHTS)
    LOSSES[name](scores, labels, weights).backward()
    direction = torch.randn(scores.shape)
    step = 1e-2
    with torch.no_grad():
        above, below = (
            LOSSES[name](scores + sign * step * direction, labels, weights) for sign in (1, -1)
        )
    slope = (above - below) / (2 * step)
    assert (scores.grad * direction).sum().item() == pytest.approx(slope.item(), abs=2e-3)
    assert scores.grad.abs().max() > 1e-3


@each_loss
@pytest.mark.parametrize(
    ("labels", "weights"),
    [
        (torch.full((2, 3, 3), 255), None),
        (torch.full((2, 3, 3), 255), torch.tensor(WEIGHTS)),
        (torch.full((2, 3, 3), 2), torch.tensor(WEIGHTS)),  # a class that weighs nothing
        (torch.tensor([[[2, 255]]]), torch.tensor(WEIGHTS)),
    ],
    ids=["unlabelled", "unlabelled, weighted", "weightless", "either"],
)
def test_nothing_to_learn_costs_nothing_and_moves_nothing(name, labels, weights):
    scores = torch.randn(len(labels), CLASSES, *labels.shape[1:], requires_grad=True)
    loss = LOSSES[name](scores, labels, weights)
    loss.backward()
    assert loss.item() == 0
    assert (scores.grad == 0).all()


@each_loss
def test_low_precision_scores_cost_a_float32(name):
    scores, labels = draw(1)
    low = scores.bfloat16()
    loss = LOSSES[name](low, labels, torch.tensor(WEIGHTS))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, LOSSES[name](low.float(), labels, torch.tensor(WEIGHTS)))


@each_loss
@pytest.mark.parametrize("right", [True, False])
def test_certainty_is_finite(name, right):
    """p rounds to 1, or to 0: a power or a logarithm of that must not become NaN."""
    labels = torch.tensor([[[0, 1, 255]]])
    scores = torch.zeros(1, 2, 1, 3)
    scores[0, :, 0, 0] = torch.tensor([200.0, -200.0])
    scores[0, :, 0, 1] = torch.tensor([-200.0, 200.0])
    scores = (scores if right else -scores).requires_grad_()
    options = [{"gamma": gamma} for gamma in (0, 0.5, 1, 2)] if name == "focal" else [{}]
    for option in options:
        scores.grad = None
        loss = LOSSES[name](scores, labels, **option)
        loss.backward()
        assert loss.isfinite()
        assert scores.grad.isfinite().all()
        assert loss.item() < 1e-5 if right else loss.item() > 0.9


@pytest.mark.parametrize("weights", [None, torch.tensor(WEIGHTS)], ids=["plain", "weighted"])
def test_the_ends_of_their_options_are_cross_entropy(weights):
    scores, labels = draw(2)
    expected = cross_entropy(scores, labels, weights)
    torch.testing.assert_close(focal(scores, labels, weights, gamma=0), expected)
    torch.testing.assert_close(ohem(scores, labels, weights, keep=1, threshold=0), expected)
    torch.testing.assert_close(ohem(scores, labels, weights, keep=7.0, threshold=0), expected)
    torch.testing.assert_close(ohem(scores, labels, weights, threshold=1), expected)
    torch.testing.assert_close(dice(scores, labels, weights, cross_entropy_share=1), expected)
    torch.testing.assert_close(lovasz(scores, labels, weights, cross_entropy_share=1), expected)


def test_lovasz_of_certain_predictions_is_one_minus_the_mean_iou():
    _, labels = draw(5, size=(2, 16, 16), unlabelled=0.2)
    guess = torch.randint(0, CLASSES, labels.shape)
    scores = 100.0 * torch.nn.functional.one_hot(guess, CLASSES).movedim(-1, 1)
    matrix = ConfusionMatrix(CLASSES)
    matrix.update(guess[:, ::4, ::4], labels[:, ::4, ::4])
    found = lovasz(scores, labels, cross_entropy_share=0)
    assert found.item() == pytest.approx(1 - matrix.scores().mean_iou, abs=1e-6)


@each_loss
def test_repeated_images_and_scaled_weights_change_nothing(name):
    scores, labels = draw(4, size=(1, 5, 6))
    weights = torch.tensor(WEIGHTS)
    options = {"threshold": 1.0} if name == "ohem" else {}  # ceil(keep) is no mean
    once = LOSSES[name](scores, labels, weights, **options)
    twice = LOSSES[name](scores.repeat(2, 1, 1, 1), labels.repeat(2, 1, 1), weights, **options)
    torch.testing.assert_close(twice, once)
    torch.testing.assert_close(LOSSES[name](scores, labels, 10 * weights, **options), once)


def test_class_weights_worked_by_hand():
    """1000 pixels: 500 + 300 = 80 %, + 120 = 92 % crosses 85 %, so eta = 0.12."""
    found = paper_class_weights([500, 300, 120, 60, 12, 8, 0])
    # eta / f: 0.24 -> ceil(log10) = 0; 0.4 -> 0; 1 -> 0; 2 -> 1; 10 -> 1; 15 -> 2; never -> 0
    assert found.eta == pytest.approx(0.12)
    assert found.weights == (1, 1, 1, 2, 2, 4, 0)


def test_a_class_ten_times_as_frequent_weighs_half():
    """log10(eta / f) = -1 exactly: no rounding may lift it to 0."""
    assert paper_class_weights([700, 70, 70, 70, 70, 20]).weights[0] == 0.5


@pytest.mark.parametrize("power", range(1, 16))
def test_whole_powers_of_ten_are_exact(power):
    # the first class is frequent and alone: eta is its own frequency
    assert paper_class_weights([10**power, 1]).weights == (1, 2.0**power)
    assert paper_class_weights([10**power]).weights == (1,)


@pytest.mark.parametrize("pixels", [[5], [600, 300, 100, 0], [1, 10**12], [0, 7, 7, 0]])
def test_inverse_weights_make_classes_equal(pixels):
    weights = inverse_class_weights(pixels)
    shares = [count * weight for count, weight in zip(pixels, weights, strict=True) if count]
    assert shares == pytest.approx([shares[0]] * len(shares))
    assert sum(shares) == pytest.approx(sum(pixels))  # a pixel weighs 1 on average
    assert all(weight == 0 for count, weight in zip(pixels, weights, strict=True) if not count)


@pytest.mark.parametrize("weigh", [paper_class_weights, inverse_class_weights])
@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ([0, 0], "pixels: no labelled pixel at all; "),
        ([], "pixels: no labelled pixel at all; "),
        ([3, -1], r"pixels: a negative count \(-1\); "),
        ([1, -1], r"pixels: a negative count \(-1\); "),
    ],
)
def test_nonsense_is_refused(weigh, pixels, message):
    with pytest.raises(ValueError, match=message):
        weigh(pixels)
