"""The picture of an epoch: each image beside its labels and its prediction."""

import numpy as np
import pytest

from scaseg.plots.validation_sheet import GAP, WIDTH, Panel, validation_sheet

PALETTE = ((255, 0, 0), (0, 255, 0), (0, 0, 255))


def panel(height, width, *, label=0, predicted=1, name="photo"):
    image = np.full((height, width, 3), 128, np.uint8)
    labels = np.full((height, width), label, np.int64)
    labels[height - height // 4 :] = 255
    return Panel.of(name, image, labels, np.full((height, width), predicted))


@pytest.mark.parametrize("size", [(60, 80), (400, 40), (40, 900), (1200, 1600), (1, 1)])
def test_photograph_label_and_prediction_stand_side_by_side(size):
    sheet = validation_sheet([panel(*size)], ("a", "b", "c"), PALETTE, title="epoch 1")
    assert sheet.width == WIDTH
    step = (WIDTH - 4 * GAP) // 3
    photograph, label, prediction = (sheet.getpixel((GAP + i * step + 1, 50)) for i in range(3))
    assert photograph == (128, 128, 128)
    assert max(label) == label[0] > 2 * label[1]  # red: the class of the label
    assert max(prediction) == prediction[1] > 2 * prediction[0]


@pytest.mark.parametrize(("size", "most"), [((60, 80), 900), ((400, 100), 1300), ((40, 400), 1000)])
def test_six_have_the_shape_of_a_screen(size, most):
    sheet = validation_sheet([panel(*size)] * 6, ("a", "b", "c"), PALETTE)
    assert 350 < sheet.height < most


def test_what_is_right_is_counted_at_full_size():
    one = panel(2000, 1000, label=1)
    assert max(one.image.shape) == max(one.labels.shape) == WIDTH // 3
    assert one.accuracy == 1
    assert panel(8, 8).accuracy == 0
    assert np.isnan(panel(8, 8, label=255).accuracy)
    validation_sheet([panel(8, 8, label=255)], ("a", "b", "c"), PALETTE)


def test_bands_are_shown_as_colors():
    bands = np.linspace(0, 5000, 2 * 5 * 4).reshape(2, 5, 4).astype(np.float32)
    labels = np.zeros((2, 5), np.int64)
    one = Panel.of("scene", bands, labels, labels)
    assert (one.image.shape, one.image.dtype) == ((2, 5, 3), np.uint8)
    validation_sheet([one], ("a", "b", "c"), PALETTE)
