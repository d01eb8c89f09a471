import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.explanation.features import ContextFeatures, extract_features
from scaseg.explanation.maps import explain, grid_points
from scaseg.registry import CONTEXTS
from tests.explanation.planted import Planted, photograph, small_model
from tests.nn.blocks import WITH_MAPS, WITHOUT_MAPS

# height, width of the photograph, and what the network is to see at most
SIZES = [(64, 96, None), (61, 90, None), (71, 103, None), (200, 300, (64, 64)), (40, 30, (96, 96))]


@pytest.mark.parametrize(("height", "width", "fit"), SIZES)
@pytest.mark.parametrize("backbone", ["vgg16", "mobilenet_v2"])
def test_a_planted_dependency_lands_on_its_pixels(backbone, height, width, fit):
    model = small_model(backbone=backbone, fit=fit)
    image = photograph(height, width)
    grid = extract_features(model, image).grid
    rows, columns = grid.map_size
    if fit is None:  # the middle of what a neuron sees: tests/models/test_backbones.py
        assert grid.center(1, 2) == (model.backbone.offset + 16, model.backbone.offset + 8)
    for place in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)]:
        model.context = Planted(model, *place)
        points = [(0, 0), (width - 1, height - 1)]
        found = explain(model, image, points=points)
        for index in range(len(points)):
            if tuple(found.neurons[index]) == place:  # its own source is no context
                continue
            on_photograph = found.upsample(index)
            assert on_photograph.shape == (height, width)
            x, y = found.grid.center(*place)
            reach = 8 * np.array(
                [height / found.grid.input_size[0], width / found.grid.input_size[1]]
            )
            # beyond the outermost neuron, where VGG16 looks at nothing, its value goes on
            ends = found.grid.center(0, 0)[::-1], found.grid.center(rows - 1, columns - 1)[::-1]
            pixels = np.stack(np.indices((height, width)), -1).clip(*ends)
            distance = (np.abs(pixels - (y, x)) / reach).max(-1)  # in neurons
            relative = on_photograph / on_photograph.max()
            assert (relative[distance < 0.1] > 0.8).all()
            assert (relative[distance >= 1] < 0.01).all()
            top, left = np.unravel_index(on_photograph.argmax(), on_photograph.shape)
            assert found.grid.neuron_at(left, top) == place


def test_a_bright_spot_that_all_depend_on_is_where_it_was_painted():
    """From end to end: the score of a source is what a predictor makes of its pixels."""
    model = small_model("sca", "vgg16", layers=0, score_bound=None, activation="exp")
    image = np.zeros((120, 160, 3), np.uint8)
    image[80:88, 40:48] = 255
    features = extract_features(model, image).features
    plain = extract_features(model, np.zeros_like(image)).features
    towards = (features - plain)[0, :, 10, 5]
    weight = model.context.predictor.score.weight.data
    weight.zero_()
    weight[0, len(towards) :, 0, 0] = 20 * towards / towards.norm() ** 2
    found = explain(model, image, points=[(150, 10)])
    top, left = np.unravel_index(found.upsample(0).argmax(), image.shape[:2])
    assert abs(top - 83.5) <= 8
    assert abs(left - 43.5) <= 8


def test_cells_cover_the_photograph():
    grid = explain(small_model(), photograph(45, 70), points=[(3, 4)]).grid
    covered = np.zeros((90, 141), int)
    for row, column in np.ndindex(grid.map_size):
        covered[grid.cell(row, column, covered.shape)] += 1
    assert (covered == 1).all()
    for x, y in ((0, 0), (37, 21), (69, 44)):
        rows, columns = grid.cell(*grid.neuron_at(x, y))
        assert rows.start <= y < rows.stop
        assert columns.start <= x < columns.stop


@pytest.mark.parametrize("context", sorted({*CONTEXTS} & {*WITH_MAPS}))
def test_maps_are_the_rows_of_the_coefficients(context):
    model = small_model(context)
    image = photograph(61, 90)
    points = [(0, 0), (45, 30), (89, 60)]
    found = explain(model, image, points=points)
    features = extract_features(model, image).features
    with torch.no_grad():
        everything = model.context.coefficients(features)[0]
    for index, (row, column) in enumerate(found.neurons):
        own = row * 12 + column
        expected = everything[own].clone()
        if model.context.exclude_self:
            expected[own] = 0
            assert found.maps[index, row, column] == 0
        np.testing.assert_allclose(
            found.maps[index].ravel(), expected / expected.sum(), rtol=1e-5, atol=1e-8
        )
        assert found.maps[index].sum() == pytest.approx(1, abs=1e-5)
        alone = model.context.dependency_map(features, row, column)[0].detach()
        np.testing.assert_allclose(found.maps[index], alone, rtol=1e-5, atol=1e-8)
    assert found.neurons[0].tolist() == [0, 0]
    assert found.maps.dtype == np.float32


def test_answers_are_the_labels_under_the_points():
    model, image = small_model(), photograph(61, 90)
    model.head.score.weight.data.normal_()  # classes that vary over the photograph
    labels = model.predict(image).labels
    y, x = np.argwhere(labels[:61, :61] != labels[:61, :61].T)[0]  # not the other way round
    assert explain(model, image, points=[(x, y)]).answers == (model.classes[labels[y, x]],)


def test_a_uniform_map_is_the_average():
    found = explain(small_model("average"), photograph(64, 64), points=[(32, 32)])
    others = found.maps[0][found.maps[0] > 0]
    np.testing.assert_allclose(others, found.average, rtol=1e-5)


def test_paths_pictures_and_arrays_give_the_same(tmp_path):
    model = small_model()
    image = photograph(48, 64)
    turned = Image.fromarray(np.rot90(image))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: shown upright it is `image`
    turned.save(tmp_path / "turned.png", exif=exif)
    expected = explain(model, image, points=[(50, 7)])
    for other in (Image.fromarray(image), tmp_path / "turned.png", str(tmp_path / "turned.png")):
        found = explain(model, other, points=[(50, 7)])
        np.testing.assert_array_equal(found.image, image)
        np.testing.assert_array_equal(found.maps, expected.maps)


def test_the_mode_is_left_as_it_was():
    model = small_model("gated").train()  # which drops scores at random in training
    model.head.eval()
    before = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    first = explain(model, photograph(48, 64), points=[(5, 5)])
    assert [module.training for module in model.modules()] == before
    for name, value in model.state_dict().items():  # running means too
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)
    np.testing.assert_array_equal(
        first.maps, explain(model.eval(), photograph(48, 64), points=[(5, 5)]).maps
    )


@pytest.mark.parametrize("context", ["dot", "sca"])
def test_class_maps_are_means_over_the_neurons_of_a_class(context, monkeypatch):
    model = small_model(context, classes=["few", "many", "none", "some"])
    image = photograph(64, 96)
    decided = torch.ones(8, 12, dtype=torch.long)
    decided[2:5, 3:9] = 3
    decided[0, 0] = 0
    monkeypatch.setattr(ContextFeatures, "classes", lambda features: decided)
    found = explain(model, image, classes=True)
    assert found.names == ("many (80 %)", "some (19 %)", "few (1 %)")
    assert found.regions.sum(0).tolist() == np.ones(found.regions.shape[1:]).tolist()
    features = extract_features(model, image).features
    every = [model.context.dependency_map(features, r, c) for r in range(8) for c in range(12)]
    every = torch.stack(every).detach().numpy().reshape(96, 96)
    if context == "sca":
        np.fill_diagonal(every, np.nan)  # a source's own entry does not count
    for values, region in zip(found.maps, found.regions, strict=True):
        if region.sum() > 1:
            expected = np.nanmean(every[region.ravel()], 0)
            expected /= expected.sum()
            np.testing.assert_allclose(values.ravel(), expected, rtol=1e-4, atol=1e-8)


def test_a_class_of_the_only_neuron_depends_on_nothing():
    """Divided by the sum of its map, which is 0, it was NaN."""
    assert explain(small_model(), photograph(8, 8), classes=True).maps.tolist() == [[[0.0]]]


def test_points_may_be_an_array():
    points = np.array([[3, 4], [60, 40]])
    found = explain(small_model(), photograph(48, 64), points=points)
    expected = explain(small_model(), photograph(48, 64), points=[(3, 4), (60, 40)])
    np.testing.assert_array_equal(found.neurons, expected.neurons)


def test_class_maps_of_even_dependencies_are_even():
    found = explain(small_model("average"), photograph(64, 96), classes=True)
    np.testing.assert_allclose(found.maps, found.average, rtol=1e-4)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(64, 0)], "point: 64,0 is outside the image of 64 x 48; give x from 0 to 63"),
        ([(0, -1)], "outside the image"),
        ([(1, 2, 3)], "two numbers"),
        ([(float("nan"), 0)], "two numbers"),
        (["ab"], "two numbers"),
        ([], "give at least one"),
    ],
)
def test_points_that_are_none(points, said):
    with pytest.raises(ValueError, match=said):
        explain(small_model(), photograph(48, 64), points=points)


def test_a_model_without_context_says_so():
    with pytest.raises(ValueError, match=r"context is 'none'.*give one with sca, dot or average"):
        explain(small_model("none"), photograph(48, 64), points=[(0, 0)])


@pytest.mark.parametrize("context", WITHOUT_MAPS)
def test_a_context_without_maps_says_so(context):
    with pytest.raises(ValueError, match=r"^context: .*not a weighted mean.*; use sca, or another"):
        explain(small_model(context), photograph(48, 64), points=[(0, 0)])


def test_images_that_are_none():
    with pytest.raises(ValueError, match=r"shape \(48, 64, 3\) and dtype int32; give a path"):
        explain(small_model(), np.zeros((48, 64, 3), np.int32), points=[(0, 0)])


@pytest.mark.parametrize(
    "which", [{}, {"points": [(1, 1)], "classes": True}, {"grid": (2, 2), "classes": True}]
)
def test_neurons_are_chosen_in_one_way(which):
    with pytest.raises(ValueError, match=r"give points, grid or classes"):
        explain(small_model(), photograph(48, 64), **which)


@pytest.mark.parametrize("grid", [(0, 3), (49, 2), (2, 65)])
def test_grids_with_no_point_or_more_than_pixels(grid):
    with pytest.raises(ValueError, match=rf"grid: {grid[0]}x{grid[1]} of an image with 48"):
        explain(small_model(), photograph(48, 64), grid=grid)


def test_grid_points_lie_inside():
    points = grid_points((5, 7), 3, 4)
    assert len(set(points)) == 12
    assert all(0 <= x < 7 and 0 <= y < 5 for x, y in points)
