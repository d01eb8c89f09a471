from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from scaseg.errors import UserError
from scaseg.explanation.figure import (
    GRAY,
    NO_COLOR,
    TIMES,
    choose_layout,
    draw_dependency_maps,
    evenness_note,
    map_colors,
    shade,
)
from scaseg.explanation.maps import explain
from scaseg.plots.palette import default_palette
from tests.explanation.planted import Planted, photograph, small_model


def pixels_of(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def explained(size=(40, 60), context="sca", **which):
    return explain(small_model(context), photograph(*size), **(which or {"points": [(3, 4)]}))


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_one_to_twelve_points(count):
    figure = explained((96, 128), "dot", grid=(1, count)).figure(width=6)
    assert pixels_of(figure).shape[1] == 900
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["photograph", "prediction"]
    assert sum(TIMES in title for title in titles) == count


def test_the_prediction_stands_beside_the_photograph():
    """Its classes in their colors, a legend of them, and the class at each point by its name."""
    model, image = small_model(classes=["sky", "$tree", "_road"]), photograph(64, 96)
    model.head.score.bias.data[1] = 50  # one class everywhere
    maps = explain(model, image, points=[(3, 4), (90, 60)])
    assert maps.answers == ("$tree", "$tree")
    np.testing.assert_array_equal(maps.segmentation.labels, model.predict(image).labels)
    figure = maps.figure(width=8)
    pixels_of(figure)
    painted = np.asarray(figure.axes[1].images[0].get_array()).reshape(-1, 3).mean(0)
    expected = 0.6 * np.array(default_palette(3)[1]) + 0.4 * image.reshape(-1, 3).mean(0)
    np.testing.assert_allclose(painted, expected, atol=3)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["\u200b\\$tree  100 %"]
    headings = [axes.get_title() for axes in figure.axes[2:4]]
    assert [heading.split()[:2] for heading in headings] == [["1", "$tree"], ["2", "$tree"]]
    assert explain(model, image, classes=True).answers == ()


def test_pictures_beside_each_other_begin_at_one_height():
    figure = explained((160, 120)).figure(width=10)
    pixels_of(figure)
    tops = [axes.get_position().y1 for axes in figure.axes[:3]]
    assert tops == pytest.approx(3 * tops[:1], abs=1e-6)


def test_more_points_than_there_is_room_for():
    maps = explained(grid=(8, 8))
    with pytest.raises(UserError, match=r"point: 64; a figure has room for 60 at most"):
        maps.figure()


def test_of_many_classes_the_largest_are_drawn_and_a_line_says_so(monkeypatch):
    monkeypatch.setattr("scaseg.explanation.figure.MAX_MAPS", 1)
    maps = replace(explained(grid=(1, 3)), regions=np.ones((3, 5, 8), bool))
    figure = maps.figure(width=4)
    assert sum(TIMES in axes.get_title() for axes in figure.axes) == 1
    assert "the 1 largest of 3 classes; an npz file has all" in words_of(figure)


@pytest.mark.parametrize("count", range(1, 31))
@pytest.mark.parametrize("shape", [0.25, 0.66, 1, 1.5, 4])
def test_a_layout_has_a_place_for_each(count, shape):
    for large in (1, 2):
        layout = choose_layout(count, shape, large=large)
        taken = np.zeros((layout.rows, layout.columns), int)
        for rows, columns in layout.large_panels():
            assert rows.stop <= layout.rows
            assert columns.stop <= layout.columns
            taken[rows, columns] += 1
        assert taken.sum() == large * layout.span**2
        free = list(layout.free_cells())
        for place in free:
            taken[place] += 1
        assert (taken == 1).all()
        assert len(free) >= count
        assert 0.3 < layout.columns * shape / layout.rows < 7


@pytest.mark.parametrize("size", [(1, 1), (9, 300), (400, 12)])
@pytest.mark.parametrize("which", [{"points": [(0, 0)]}, {"classes": True}])
def test_odd_photographs(size, which):
    pixels_of(explained(size, "dot", **which).figure(width=4))


def test_channels_that_are_not_colors():
    image = photograph(40, 60)[..., :2]
    pixels_of(explain(small_model(in_channels=2), image, points=[(3, 4)]).figure(width=3))


@pytest.mark.parametrize("context", ["average", "dot"])
def test_classes_have_their_share_in_the_title(context):
    """Or, where panels are narrow, in the legend alone."""
    figure = explained((64, 96), context, classes=True).figure(width=20)
    assert any("%" in axes.get_title() for axes in figure.axes)
    figure = explained((64, 96), context, classes=True).figure(width=4)
    assert not any("%" in axes.get_title() for axes in figure.axes)
    assert any("%" in text.get_text() for text in figure.legends[0].get_texts())


def test_names_are_not_taken_for_formulas():
    model = small_model("average", classes=["a $b_ c", "$d"])
    pixels_of(explain(model, photograph(40, 40), classes=True).figure(width=4))


def test_the_scale_is_common_and_in_multiples_of_the_average():
    scale = map_colors(explained((64, 64), "average", points=[(0, 0), (60, 60)])).norm
    assert (scale.vmin, scale.vmax) == (0, pytest.approx(2, rel=0.01))


def test_signed_maps_diverge_around_zero():
    model = small_model()
    model.context = Planted(model, 0, 0, strength=-5.0)
    colors = map_colors(explain(model, photograph(64, 64), points=[(60, 60)]))
    assert colors.norm.vmin == -colors.norm.vmax
    assert colors.cmap.name == "RdBu_r"


def words_of(figure):
    """All text in a figure."""
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn_map(figure):
    """The picture of the first map, at whatever size it was drawn."""
    return np.asarray(figure.axes[2].images[0].get_array())


@pytest.mark.parametrize("level", [0, 255])
def test_the_neurons_own_empty_cell_is_gray_and_casts_no_shadow(level):
    image = np.full((64, 96, 3), level, np.uint8)
    maps = explain(small_model("average"), image, points=[(40, 24)])
    figure = maps.figure(width=6)
    assert NO_COLOR in words_of(figure)
    drawn = drawn_map(figure)
    rows, columns = maps.grid.cell(*maps.neurons[0], drawn.shape[:2])
    assert (drawn[rows, columns] == GRAY).all()
    size = ((rows.stop - rows.start) / len(drawn), (columns.stop - columns.start) / len(drawn[0]))
    assert size == pytest.approx((1 / 8, 1 / 12), abs=0.01)
    others = np.ones(drawn.shape[:2], bool)
    others[rows, columns] = False
    assert np.ptp(drawn[others].astype(int), axis=0).max() <= 1  # an even map has one color


@pytest.mark.parametrize(
    ("context", "which"), [("dot", {"points": [(40, 24)]}), ("average", {"classes": True})]
)
def test_maps_without_an_empty_cell_have_no_gray(context, which):
    figure = explained((64, 96), context, **which).figure(width=6)
    assert NO_COLOR not in words_of(figure)
    assert not (drawn_map(figure) == GRAY).all(-1).any()


def test_maps_that_are_nearly_even_say_so():
    model, image, points = small_model("average"), photograph(64, 96), [(40, 24)]
    assert evenness_note(explain(model, image, points=points)) == "all alike"
    model.context = Planted(model, 0, 0, strength=1.04)
    nearly = explain(model, image, points=points)
    assert evenness_note(nearly) == "nearly even: 99 % lie within 2.1 % of the average"
    assert evenness_note(nearly) in words_of(draw_dependency_maps(nearly, width=6))
    model.context = Planted(model, 0, 0)
    assert evenness_note(explain(model, image, points=points)) == ""


@pytest.mark.parametrize("level", [0, 128, 255])
def test_wide_areas_keep_the_colors_of_the_scale(level):
    painted = np.full((40, 60, 3), (0.2, 0.5, 0.7))
    image = np.full((40, 60, 3), level, np.uint8)
    np.testing.assert_allclose(shade(painted, image), 255 * painted, atol=1)


def test_a_figure_is_saved_by_the_suffix_of_its_file(tmp_path):
    explained().save(tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.size[0] == 1500
    with pytest.raises(UserError, match=r"figure.bmp: unknown format 'bmp'"):
        explained().save(tmp_path / "figure.bmp")


def test_the_numbers(tmp_path):
    maps = explained(points=[(3, 4), (50, 30)])
    maps.save(tmp_path / "maps.npz")
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["maps"], maps.maps)
        np.testing.assert_array_equal(found["points"], [(3, 4), (50, 30)])
        assert tuple(found["answers"].tolist()) == maps.answers
        assert found["centres_x"].tolist() == [0, 8, 16, 24, 32, 40, 48, 56]
