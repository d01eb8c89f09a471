"""The metrics against NumPy, written independently, exactly."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaseg.metrics import TEMPERATURES, Calibration, ConfusionMatrix


def by_numpy(predicted, truth, classes, ignore):
    """Class by class, from the definitions."""
    keep = truth != ignore
    accuracies, ious = [], []
    for k in range(classes):
        true, guess = (truth == k) & keep, (predicted == k) & keep
        if not true.any():
            accuracies.append(math.nan)
            ious.append(math.nan)
            continue
        both = np.count_nonzero(true & guess)
        accuracies.append(both / np.count_nonzero(true))
        ious.append(both / np.count_nonzero(true | guess))
    right = np.count_nonzero((predicted == truth) & keep)
    labelled = np.count_nonzero(keep)
    return right / labelled if labelled else math.nan, accuracies, ious


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_equal_to_numpy(seed, classes, images, few_classes):
    random = np.random.default_rng(seed)
    used = max(1, classes // 2) if few_classes else classes  # the rest never occurs
    truth = random.integers(0, used, (images, 5, 7))
    truth[random.random(truth.shape) < 0.2] = 255
    predicted = random.integers(0, classes, truth.shape)
    matrix = ConfusionMatrix(classes)
    for guess, true in zip(predicted, truth, strict=True):
        matrix.update(torch.from_numpy(guess), torch.from_numpy(true))
    scores = matrix.scores()
    pixel, accuracies, ious = by_numpy(predicted, truth, classes, 255)
    np.testing.assert_equal(scores.accuracies, accuracies)
    np.testing.assert_equal(scores.ious, ious)
    np.testing.assert_equal(scores.pixel_accuracy, pixel)
    np.testing.assert_allclose(scores.class_accuracy, np.nanmean(accuracies), rtol=1e-14)
    np.testing.assert_allclose(scores.mean_iou, np.nanmean(ious), rtol=1e-14)


def test_parts_may_be_added_in_any_order():
    truth, predicted = torch.randint(0, 5, (2, 7, 40, 30))
    whole = ConfusionMatrix(5)
    whole.update(predicted, truth)
    parts = [ConfusionMatrix(5) for _ in range(3)]
    for index in range(7):
        parts[index % 3].update(predicted[index], truth[index])
    total = ConfusionMatrix(5)
    total.counts = parts[2].counts + parts[0].counts + parts[1].counts
    assert total.scores() == whole.scores()


def test_absent_classes_are_shown_as_such():
    matrix = ConfusionMatrix(3)
    matrix.update(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 0, 255]))
    table = matrix.scores().table(["sky", "tree", "sea"])
    assert [line.split()[0] for line in table.splitlines()[:3]] == ["class", "sky", "tree"]
    assert table.splitlines()[3] == "1 of 3 classes does not occur: sea"
    assert "PPA/aAcc 66.7   CAA/mAcc 75.0   mIoU 50.0" in table
    assert matrix.scores().pixels == 3


def test_many_absent_classes_are_one_line():
    matrix = ConfusionMatrix(171)
    matrix.update(torch.tensor([3]), torch.tensor([3]))
    lines = matrix.scores().table([f"name {index}" for index in range(171)]).splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["name", "3", "100.0", "100.0"]
    assert lines[2].startswith("170 of 171 classes do not occur: name 0, name 1, name 2, name 4,")
    assert lines[2].endswith(" and 162 more")


def test_nothing_labelled():
    matrix = ConfusionMatrix(2)
    matrix.update(torch.tensor([0, 1]), torch.tensor([255, 255]))
    assert math.isnan(matrix.scores().pixel_accuracy)
    assert "n/a" in matrix.scores().table(["a", "b"])


@pytest.mark.parametrize(
    ("predicted", "truth", "message"),
    [
        ([0, 1], [0, 7], "truth: holds 7, which is none of the 2 classes nor 255"),
        ([0, 2], [0, 1], "prediction: holds 2"),
        ([0, -1], [0, 1], "prediction: holds -1"),
        ([0], [0, 1], "at the labels' own resolution"),
        ([0.2, 0.9], [0, 1], "give scores.argmax"),
    ],
)
def test_what_is_no_class_is_refused(predicted, truth, message):
    with pytest.raises(ValueError, match=message):
        ConfusionMatrix(2).update(torch.tensor(predicted), torch.tensor(truth))


def draws(temperature, classes=4, pixels=40_000):
    """Probabilities (classes, 1, pixels), and a truth drawn from them softened by a temperature."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(classes, pixels, generator=generator)
    true = torch.multinomial((scores / temperature).softmax(0).T, 1, generator=generator)[:, 0]
    return scores.softmax(0).unsqueeze(1), true.unsqueeze(0)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7, 4.0])
def test_the_temperature_that_made_the_labels_is_found(temperature):
    probabilities, truth = draws(temperature)
    calibration = Calibration()
    for part in range(0, truth.shape[1], 2000):  # images
        calibration.update(probabilities[..., part : part + 2000], truth[:, part : part + 2000])
    assert calibration.fit() == pytest.approx(temperature, rel=0.04)
    fitted = Calibration(calibration.fit())
    fitted.update(probabilities, truth)
    before, after = fitted.errors()
    assert after < 0.015
    if temperature != 1:
        assert before > 0.05


def test_calibration_error_by_hand():
    """Four pixels at 0.9 of which two are right, and one at 0.6 that is: (4 |.9 - .5| + .4) / 5."""
    p = torch.tensor([[0.9, 0.9, 0.9, 0.9, 0.4, 0.5], [0.1, 0.1, 0.1, 0.1, 0.6, 0.5]]).unsqueeze(1)
    truth = torch.tensor([[0, 0, 1, 1, 1, 255]])
    calibration = Calibration()
    calibration.update(p, truth)
    assert calibration.errors() == (pytest.approx(2 / 5), pytest.approx(2 / 5))


def test_a_temperature_lies_between_those_that_were_tried():
    calibration = Calibration()
    calibration.losses = (torch.arange(len(TEMPERATURES)) - 20.3).square().double() + 1
    assert calibration.fit() == pytest.approx(2 ** ((20.3 - 16) / 8), rel=1e-4)


def test_nothing_counted_has_no_temperature():
    calibration = Calibration()
    calibration.update(torch.ones(2, 1, 3) / 2, torch.full((1, 3), 255))
    assert calibration.fit() == 1
    assert all(math.isnan(error) for error in calibration.errors())
