import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from scaseg.data.sample import Sample
from scaseg.explanation.disagreement import check_pair, compare_models, most_telling
from scaseg.explanation.figure import NO_COLOR
from scaseg.explanation.page import _columns, _legend, draw_comparisons
from scaseg.explanation.regions import inmost_pixel, largest_region
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
    np.testing.assert_array_equal(found[:4], expected[:4])
    assert found.sum() == 15


def by_flooding(mask):
    """The obvious version: spread from each pixel until nothing changes."""
    best, left = np.zeros_like(mask), mask.copy()
    while left.any():
        region = np.zeros_like(mask)
        region[tuple(np.argwhere(left)[0])] = True
        while True:
            wider = region.copy()
            wider[1:] |= region[:-1]
            wider[:-1] |= region[1:]
            wider[:, 1:] |= region[:, :-1]
            wider[:, :-1] |= region[:, 1:]
            wider &= mask
            if (wider == region).all():
                break
            region = wider
        left &= ~region
        best = region if region.sum() > best.sum() else best
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_region_is_what_flooding_finds(seed):
    random = np.random.default_rng(seed)
    mask = random.random((23, 31)) < random.uniform(0.3, 0.7)
    assert largest_region(mask).sum() == by_flooding(mask).sum()
    region = largest_region(mask)
    np.testing.assert_array_equal(by_flooding(region), region)  # in one piece


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
    single[4, 6] = True
    assert inmost_pixel(single) == (6, 4)
    with pytest.raises(ValueError, match=r"region: empty"):
        inmost_pixel(np.zeros((3, 3), bool))


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


def test_the_place_where_only_the_second_is_right(models):
    found = compare_models(*models, sample())
    x, y = found.center
    assert found.region[y, x]
    assert found.truth[y, x] == 1
    expected = found.truth == 1
    expected[35:] = False
    np.testing.assert_array_equal(found.region, expected)
    assert found.share == pytest.approx(expected.sum() / (found.truth != 255).sum())
    wrong = (found.truth != 255).sum()
    right = [(found.truth == number).sum() / wrong for number in (0, 1)]
    assert found.accuracies() == pytest.approx(right)
    assert found.maps.points == (found.center,)


def test_the_most_telling_come_first(models):
    samples = [sample((48, side), str(side)) for side in (96, 56, 128, 44, 70)]
    seen = []
    found = most_telling(*models, samples, top=2, progress=seen.append)
    assert [one.name for one in found] == ["44", "56"]  # the region's share, not its size
    assert seen == [1, 2, 3, 4, 5]


def test_nothing_to_show(models):
    assert compare_models(models[0], models[0], sample()) is None
    assert most_telling(models[0], models[0], [sample()]) == []


def test_models_that_cannot_be_compared(models):
    with pytest.raises(ValueError, match=r"3 and 4 classes"):
        check_pair(models[0], small_model("dot", classes=4))
    with pytest.raises(ValueError, match=r"context is 'none'"):
        check_pair(models[1], models[0])


def test_labels_that_do_not_fit(models):
    wrong = sample()
    wrong.labels[0, 0] = 7
    with pytest.raises(ValueError, match=r"scene: holds 7, but the models have 3 classes"):
        compare_models(*models, wrong)
    wrong.labels = wrong.labels[:-1]
    with pytest.raises(ValueError, match=r"labels of 47 x 64 but the photograph is 48 x 64"):
        compare_models(*models, wrong)


def test_the_page(models):
    classes = ("sky $x", "_tree", "road")
    found = most_telling(*models, [sample(), sample((90, 40), "tall")], top=5)
    figure = draw_comparisons(found, classes, default_palette(3), names=("none", "dot"), width=8)
    FigureCanvasAgg(figure).draw()
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text.strip("\u200b") for text in said] == [r"sky \$x", "_tree", "unlabelled"]
    titles = [axes.get_title() for axes in figure.axes]
    assert any("none: sky $x" in title for title in titles)
    with pytest.raises(ValueError, match=r"comparisons: none"):
        draw_comparisons([], classes, default_palette(3))


def test_a_page_says_which_maps_are_nearly_even(models):
    """Each row has a scale of its own, which would stretch anything to full contrast."""
    even = always(small_model("average"), 1)
    found = [compare_models(models[0], one, sample()) for one in (even, models[1])]
    assert found[1].maps.maps.max() > 1.2 * found[1].maps.average
    figure = draw_comparisons(found, ("a", "b", "c"), default_palette(3), width=8)
    FigureCanvasAgg(figure).draw()
    assert [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()] == ["all alike"]
    assert figure.legends[0].get_title().get_text() == NO_COLOR  # of the average's map
    page = draw_comparisons(found[1:], ("a", "b", "c"), default_palette(3), width=8)
    assert page.legends[0].get_title().get_text() == ""


def test_a_page_says_which_maps_are_everybodys(models):
    everybodys = always(small_model(), 1)
    everybodys.context = Planted(everybodys, 2, 3)
    found = [compare_models(models[0], one, sample()) for one in (everybodys, models[1])]
    figure = draw_comparisons(found, ("a", "b", "c"), default_palette(3), width=8)
    said = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert said == ["all neurons here have nearly this map"]


def test_a_legend_of_171_classes_fits_the_page():
    first, second = (
        always(small_model(name, classes=171), n) for n, name in enumerate(("none", "dot"))
    )
    one = sample((57, 60))
    one.labels[:] = np.arange(57 * 60).reshape(57, 60) // 20
    found = compare_models(first, second, one)
    classes = [f"class of a long name {index}" for index in range(171)]
    palette = default_palette(171)
    figure = draw_comparisons([found], classes, palette, width=10)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y0 >= 0
    panels = min(axes.get_window_extent().y0 for axes in figure.axes)
    assert box.y1 <= panels + 1
    columns, rows = _columns(_legend([found], classes, palette), 10)
    assert columns * rows >= 171
    assert len(figure.legends[0].get_texts()) == 171
