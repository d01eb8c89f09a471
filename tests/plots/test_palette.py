import hashlib

import numpy as np
import pytest

from scaseg.plots.palette import colorize, default_palette, overlay


@pytest.mark.parametrize("classes", [0, 1, 8, 171, 256, 459])
def test_colours_are_distinct_and_the_first_of_one_sequence(classes):
    found = default_palette(classes)
    assert len(set(found)) == len(found) == classes
    assert found == default_palette(600)[:classes]
    assert all(0 <= value <= 255 for one in found for value in one)


def test_colours_stay_what_they_are():
    """A change here recolours everybody's maps."""
    written = bytes(value for one in default_palette(256) for value in one)
    assert hashlib.sha256(written).hexdigest()[:16] == "b94e5ecc95e89129"


def test_171_colours_can_be_told_apart():
    colors = np.array(default_palette(171), float)
    distance = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    assert distance[~np.eye(171, dtype=bool)].min() >= 24


@pytest.mark.parametrize("classes", [-1, 1.0, True, "8", 70_000])
def test_what_is_no_number_of_classes(classes):
    with pytest.raises(ValueError, match=r"classes: .*; give a whole number"):
        default_palette(classes)


def test_painting():
    palette = ((10, 20, 30), (200, 100, 0))
    labels = np.array([[0, 1], [255, 0]], np.uint8)
    painted = colorize(labels, palette)
    assert painted.tolist() == [[[10, 20, 30], [200, 100, 0]], [[0, 0, 0], [10, 20, 30]]]
    image = np.full((2, 2, 3), 100, np.uint8)
    mixed = overlay(image, labels, palette, 0.5)
    assert mixed.tolist() == [[[55, 60, 65], [150, 100, 50]], [[100, 100, 100], [55, 60, 65]]]
    np.testing.assert_array_equal(overlay(image, labels, palette, 0), image)
    assert (image == 100).all()


def test_all_256_values_may_be_classes():
    palette = default_palette(256)
    assert colorize(np.array([[255]], np.uint8), palette)[0, 0].tolist() == list(palette[255])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[2]]), "labels: 2; 2 colors are for 0 to 1"),
        (np.array([[-1]]), "labels: -1"),
        (np.array([0]), r"labels: shape \(1,\)"),
    ],
)
def test_labels_without_a_colour(labels, message):
    with pytest.raises(ValueError, match=message):
        colorize(labels, default_palette(2))


def test_overlays_that_cannot_be():
    labels, image = np.zeros((2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)
    with pytest.raises(ValueError, match="opacity: 2; give a number from 0 to 1"):
        overlay(image, labels, default_palette(1), 2)
    with pytest.raises(ValueError, match=r"image: shape \(3, 2, 3\)"):
        overlay(image.transpose(1, 0, 2), labels, default_palette(1))
    with pytest.raises(ValueError, match="dtype float64"):
        overlay(image / 2, labels, default_palette(1))
