from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from scaseg.data.sample import Sample
from scaseg.errors import UserError
from scaseg.explanation.disagreement import inmost_pixel, largest_disagreements, largest_region
from scaseg.explanation.figure import NO_COLOR
from scaseg.explanation.page import (
    LOSS,
    WIN,
    disagreement_page,
    draw_disagreements,
    model_names,
)
from scaseg.plots.palette import default_palette
from tests.explanation.planted import Planted, photograph, small_model

PICTURE = """
    ##...#..#
    ##...####
    ..#..#..#
    .#..##..#
    ....####.
"""


def mask_of(picture):
    return np.array([[mark == "#" for mark in line] for line in picture.split()])


def test_the_largest_region_touches_by_sides():
    found = largest_region(mask_of(PICTURE))
    expected = mask_of(PICTURE)
    expected[:4, :3] = False
    np.testing.assert_array_equal(found, expected)
    assert found.sum() == 15
    corners = np.eye(5, dtype=bool)
    corners[0, 1] = True
    assert largest_region(corners).sum() == 3  # the others touch by corners


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_masks_that_are_all_or_nothing(shape):
    assert not largest_region(np.zeros(shape, bool)).any()
    assert largest_region(np.ones(shape, bool)).all()


def test_the_inmost_pixel_lies_inside():
    ring = np.zeros((40, 40), bool)
    ring[5:35, 5:35] = True
    ring[9:31, 12:31] = False  # the left side is the thickest
    x, y = inmost_pixel(ring)
    assert 7 <= x <= 9
    assert ring[y - 3 : y + 4, x - 3 : x + 4].all()
    disc = np.hypot(*np.mgrid[-20:21, -20:21]) < 15
    assert inmost_pixel(disc) == (20, 20)
    single = np.zeros((5, 7), bool)
    single[4, 6] = True  # the edge of the picture is an edge of the region
    assert inmost_pixel(single) == (6, 4)
    assert inmost_pixel(np.ones((5, 7), bool)) == (3, 2)


def always(model, number):
    """Make a model say one class everywhere."""
    model.head.score.weight.data.zero_()
    model.head.score.bias.data.zero_()[number] = 5
    return model


@pytest.fixture
def models():
    return always(small_model("none"), 0), always(small_model("dot"), 1)


def sample(size=(48, 64), name="scene", seed=0):
    labels = np.zeros(size, np.int32)
    labels[10:30, 20:44] = 1
    labels[40:44, 2:5] = 1  # smaller
    labels[12:20, 22:26] = 255
    return Sample(photograph(*size, seed), labels, name)


def find(first, second, *samples, **options):
    return largest_disagreements(first, second, samples, **options)


def test_the_place_where_only_the_second_is_right(models):
    (found,) = find(*models, sample()).wins
    assert found.is_win
    x, y = found.center
    assert found.region[y, x]
    assert found.truth[y, x] == 1
    expected = found.truth == 1
    expected[35:] = False
    np.testing.assert_array_equal(found.region, expected)
    labelled = (found.truth != 255).sum()
    assert found.share == pytest.approx(expected.sum() / labelled)
    right = [(found.truth == number).sum() / labelled for number in (0, 1)]
    assert found.accuracies() == pytest.approx(right)
    assert found.maps.points == (found.center,)


def test_and_where_only_the_first_is(models):
    """Class 0 everywhere against class 1: the second loses the background."""
    both = find(*models, sample(), sample((40, 50), "other"))
    assert [one.name for one in both.losses] == ["scene", "other"]
    found = both.losses[0]
    assert not found.is_win
    np.testing.assert_array_equal(found.region, largest_region(found.truth == 0))
    assert found.maps.points == (found.center,)
    truths = [sample().labels, sample((40, 50)).labels]
    labelled = sum((truth != 255).sum() for truth in truths)
    for share, number in ((both.only_first, 0), (both.only_second, 1)):
        assert share == pytest.approx(sum((truth == number).sum() for truth in truths) / labelled)
    said = both.summary("none", "dot")
    assert said == (
        f"2 images: only dot is right in {100 * both.only_second:.2f} % of the pixels, "
        f"only none in {100 * both.only_first:.2f} %"
    )


def test_the_largest_come_first(models):
    samples = [sample((48, side), str(side)) for side in (96, 56, 128, 44, 70)]
    seen = []
    found = find(*models, *samples, top=2, progress=lambda *done: seen.append(done))
    assert [one.name for one in found.wins] == ["44", "56"]  # the region's share, not its size
    assert seen == [(done, 5) for done in (1, 2, 3, 4, 5)]


def test_nothing_to_show():
    same = always(small_model("dot"), 1)
    found = find(same, same, sample())
    assert (found.wins, found.losses, found.only_first, found.only_second) == ([], [], 0, 0)
    with pytest.raises(UserError, match=r"both are right and wrong at the same places"):
        disagreement_page(found, same)


def test_models_that_cannot_be_compared(models):
    with pytest.raises(UserError, match=r"3 and 4 classes"):
        find(models[0], small_model("dot", classes=4), sample())
    with pytest.raises(UserError, match=r"context is 'none'"):
        find(models[1], models[0], sample())


def test_labels_of_another_size(models):
    wrong = sample()
    wrong.labels = wrong.labels[:-1]
    with pytest.raises(UserError, match=r"scene: 47 x 64 but its photograph is 48 x 64"):
        find(*models, wrong)


def test_the_page(models):
    classes = ("sky $x", "_tree", "road")
    found = find(*models, sample(), sample((90, 40), "tall")).wins
    figure = draw_disagreements(found, classes, default_palette(3), names=("none", "dot"), width=8)
    FigureCanvasAgg(figure).draw()
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text.strip("\u200b") for text in said] == [r"sky \$x", "_tree", "unlabelled"]
    titles = [axes.get_title() for axes in figure.axes]
    assert any("none: sky $x" in title for title in titles)
    with pytest.raises(UserError, match=r"disagreements: none"):
        draw_disagreements([], classes, default_palette(3))


def test_a_page_has_losses_below_the_wins(models):
    found = find(*models, sample(), sample((90, 40), "tall"), top=1)
    figure = disagreement_page(found, models[1], names=model_names(*models, ("x", "y")))
    FigureCanvasAgg(figure).draw()
    rows = [axes for axes in figure.axes if axes.get_title() in ("scene", "tall")]
    circles = [axes.patches[0].get_edgecolor()[:3] for axes in rows]
    assert circles == [to_rgb(WIN), to_rgb(LOSS)]
    headings = [axes.texts[0].get_text() for axes in figure.axes if not axes.axison]
    shares = [f"{100 * share:.2f} %" for share in (found.only_second, found.only_first)]
    for heading, name, share in zip(headings, ("dot", "none"), shares, strict=True):
        assert heading.startswith(f"only {name} is right: {share} of the labelled pixels")
    only_losses = replace(found, wins=[])
    FigureCanvasAgg(disagreement_page(only_losses, models[1])).draw()


def test_models_are_told_apart_by_what_differs(models):
    assert model_names(*models, ("x", "y")) == ("none", "dot")
    same = (models[1], models[1])
    assert model_names(*same, ("x", "y")) == ("x", "y")
    assert model_names(*same, ("x", "x")) == ("A", "B")


def test_a_page_says_which_maps_are_nearly_even(models):
    """Each row has a scale of its own, which would stretch anything to full contrast."""
    even = always(small_model("average"), 1)
    found = [find(models[0], one, sample()).wins[0] for one in (even, models[1])]
    assert found[1].maps.maps.max() > 1.2 * found[1].maps.average
    figure = draw_disagreements(found, ("a", "b", "c"), default_palette(3), width=8)
    FigureCanvasAgg(figure).draw()
    assert [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()] == ["all alike"]
    assert figure.legends[0].get_title().get_text() == NO_COLOR  # of the average's map
    page = draw_disagreements(found[1:], ("a", "b", "c"), default_palette(3), width=8)
    assert page.legends[0].get_title().get_text() == ""


def test_a_page_says_which_maps_are_everybodys(models):
    everybodys = always(small_model(), 1)
    everybodys.context = Planted(everybodys, 2, 3)
    found = [find(models[0], one, sample()).wins[0] for one in (everybodys, models[1])]
    figure = draw_disagreements(found, ("a", "b", "c"), default_palette(3), width=8)
    said = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert said == ["all neurons here have nearly this map"]


def test_a_legend_of_171_classes_fits_the_page():
    first, second = (
        always(small_model(name, classes=171), n) for n, name in enumerate(("none", "dot"))
    )
    one = sample((57, 60))
    one.labels[:] = np.arange(57 * 60).reshape(57, 60) // 20
    (found,) = find(first, second, one).wins
    classes = [f"class of a long name {index}" for index in range(171)]
    palette = default_palette(171)
    figure = draw_disagreements([found], classes, palette, width=10)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y0 >= 0
    panels = min(axes.get_window_extent().y0 for axes in figure.axes)
    assert box.y1 <= panels + 1
    assert len(figure.legends[0].get_texts()) == 171
