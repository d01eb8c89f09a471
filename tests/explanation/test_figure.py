import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from scaseg.explanation.figure import (
    EMPTY,
    NO_COLOR,
    draw_dependency_maps,
    evenness,
    map_colors,
    shaded,
)
from scaseg.explanation.layout import choose_layout
from scaseg.explanation.maps import class_maps, dependency_maps, grid_points
from scaseg.explanation.saving import save_figure, save_maps
from tests.explanation.planted import Planted, photograph, small_model


def pixels_of(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


@pytest.mark.parametrize("count", range(1, 13))
def test_one_to_twelve_points(count):
    image = photograph(96, 128)
    points = grid_points(image, 1, count)
    maps = dependency_maps(small_model("dot"), image, points)
    figure = draw_dependency_maps(maps, width=6)
    drawn = pixels_of(figure)
    assert drawn.shape[1] == 900
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "photograph"
    assert sum("up to" in title for title in titles) == count


@pytest.mark.parametrize("count", range(1, 31))
@pytest.mark.parametrize("shape", [0.25, 0.66, 1, 1.5, 4])
def test_a_layout_has_a_place_for_each(count, shape):
    layout = choose_layout(count, shape)
    cells = layout.cells(count)
    assert len(set(cells)) == count
    assert all(row < layout.rows and column < layout.columns for row, column in cells)
    assert all(row >= layout.span or column >= layout.span for row, column in cells)
    assert 0.3 < layout.columns * shape / layout.rows < 7


@pytest.mark.parametrize("size", [(1, 1), (9, 300), (400, 12)])
def test_odd_photographs(size):
    image = np.full((*size, 3), 255, np.uint8)
    pixels_of(draw_dependency_maps(dependency_maps(small_model(), image, [(0, 0)]), width=4))


def test_channels_that_are_not_colours():
    model = small_model(in_channels=2)
    image = photograph(40, 60)[..., :2]
    pixels_of(draw_dependency_maps(dependency_maps(model, image, [(3, 4)]), width=3))


@pytest.mark.parametrize("context", ["average", "dot"])
def test_classes(context):
    figure = draw_dependency_maps(class_maps(small_model(context), photograph(64, 96)), width=6)
    pixels_of(figure)
    assert any("%" in axes.get_title() for axes in figure.axes)


def test_names_are_not_taken_for_formulas():
    model = small_model("average", classes=["a $b_ c", "$d"])
    pixels_of(draw_dependency_maps(class_maps(model, photograph(40, 40)), width=4))


def test_the_scale_is_common_and_in_multiples_of_the_average():
    model = small_model("average")
    scale, _ = map_colors(dependency_maps(model, photograph(64, 64), [(0, 0), (60, 60)]))
    assert (scale.vmin, scale.vmax) == (0, pytest.approx(2, rel=0.01))


def test_signed_maps_diverge_around_zero():
    model = small_model("sca", activation="identity", layers=0)
    model.context = Planted(model, 0, 0, strength=-5.0)
    scale, colors = map_colors(dependency_maps(model, photograph(64, 64), [(60, 60)]))
    assert scale.vmin == -scale.vmax
    assert colors.name == "RdBu_r"


def words_of(figure):
    """All that a figure says."""
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn_map(figure):
    """The picture of the first map, at whatever size it was drawn."""
    return np.asarray(figure.axes[1].images[0].get_array())


@pytest.mark.parametrize("level", [0, 255])
def test_the_neurons_own_empty_cell_is_grey_and_casts_no_shadow(level):
    model = small_model("average")
    image = np.full((64, 96, 3), level, np.uint8)
    maps = dependency_maps(model, image, [(40, 24)])
    figure = draw_dependency_maps(maps, width=6)
    assert NO_COLOR in words_of(figure)
    drawn = drawn_map(figure)
    rows, columns = maps.grid.cell(*maps.neurons[0], drawn.shape[:2])
    assert (drawn[rows, columns] == EMPTY).all()
    size = ((rows.stop - rows.start) / len(drawn), (columns.stop - columns.start) / len(drawn[0]))
    assert size == pytest.approx((1 / 8, 1 / 12), abs=0.01)
    others = np.ones(drawn.shape[:2], bool)
    others[rows, columns] = False
    assert np.ptp(drawn[others].astype(int), axis=0).max() <= 1  # an even map has one colour


@pytest.mark.parametrize(("context", "way"), [("dot", dependency_maps), ("average", class_maps)])
def test_maps_without_an_empty_cell_have_no_grey(context, way):
    image = photograph(64, 96)
    points = ([(40, 24)],) if way is dependency_maps else ()
    figure = draw_dependency_maps(way(small_model(context), image, *points), width=6)
    assert NO_COLOR not in words_of(figure)
    assert not (drawn_map(figure) == EMPTY).all(-1).any()


def test_cells_cover_the_photograph():
    grid = dependency_maps(small_model(), photograph(45, 70), [(3, 4)]).grid
    covered = np.zeros((90, 141), int)
    for row in range(grid.map[0]):
        for column in range(grid.map[1]):
            covered[grid.cell(row, column, covered.shape)] += 1
    assert (covered == 1).all()
    for x, y in ((0, 0), (37, 21), (69, 44)):
        rows, columns = grid.cell(*grid.neuron_at(x, y))
        assert rows.start <= y < rows.stop
        assert columns.start <= x < columns.stop


def test_maps_that_are_nearly_even_say_so():
    image = photograph(64, 96)
    model = small_model("average")
    even = dependency_maps(model, image, [(40, 24)])
    assert evenness(even) == "all alike"
    model.context = Planted(model, 0, 0, strength=1.04)
    nearly = dependency_maps(model, image, [(40, 24)])
    assert evenness(nearly) == "nearly even: 99 % lie within 2.1 % of the average"
    assert evenness(nearly) in words_of(draw_dependency_maps(nearly, width=6))
    model.context = Planted(model, 0, 0)
    assert evenness(dependency_maps(model, image, [(40, 24)])) == ""


@pytest.mark.parametrize("level", [0, 128, 255])
def test_wide_areas_keep_the_colours_of_the_scale(level):
    painted = np.full((40, 60, 3), (0.2, 0.5, 0.7))
    image = np.full((40, 60, 3), level, np.uint8)
    np.testing.assert_allclose(shaded(painted, image), 255 * painted, atol=1)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_files_by_their_suffix(tmp_path, suffix):
    maps = dependency_maps(small_model(), photograph(40, 60), [(3, 4)])
    path = tmp_path / f"figure.{suffix}"
    save_figure(draw_dependency_maps(maps, width=3), path)
    start = path.read_bytes()[:200]
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix] in start
    assert list(tmp_path.iterdir()) == [path]
    if suffix == "png":
        with Image.open(path) as picture:
            assert picture.size[0] == 450


def test_other_suffixes_are_refused(tmp_path):
    maps = dependency_maps(small_model(), photograph(40, 60), [(3, 4)])
    with pytest.raises(ValueError, match=r"figure.bmp: unknown format 'bmp'; give png, pdf, svg"):
        save_figure(draw_dependency_maps(maps, width=3), tmp_path / "figure.bmp")
    assert list(tmp_path.iterdir()) == []


def test_the_numbers(tmp_path):
    maps = dependency_maps(small_model(), photograph(40, 60), [(3, 4), (50, 30)])
    save_maps(maps, tmp_path / "maps.npz")
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["maps"], maps.maps)
        np.testing.assert_array_equal(found["points"], [(3, 4), (50, 30)])
        assert found["centres_x"].tolist() == [0, 8, 16, 24, 32, 40, 48, 56]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = draw_dependency_maps(dependency_maps(small_model(), photograph(40, 60), [(3, 4)]))
    path = tmp_path / "figure.png"
    path.write_text("mine")

    def torn(place, **_):
        place.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", torn)
    with pytest.raises(OSError, match=r"disk full"):
        save_figure(figure, path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [(1, 300), (300, 1)])
def test_strips_have_class_maps_too(size):
    pixels_of(draw_dependency_maps(class_maps(small_model("dot"), photograph(*size)), width=4))
