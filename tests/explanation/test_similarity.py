"""Maps that are one and the same are told, others are not, however even they are."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from scaseg.explanation.maps import explain, nearly_equal
from tests.explanation.planted import Planted, photograph, small_model

SAME, EVERYBODYS = "these maps are nearly one and the same", "all neurons here have nearly this map"
NONE = [-1, -1]


def seen_by(model, *, points):
    return explain(model, photograph(96, 128), grid=(1, points))


def planted():
    model = small_model()
    model.context = Planted(model, 5, 7)
    return model


def choosy():
    """One channel, whose neurons have one order, and differ in how sharply they choose."""
    torch.manual_seed(0)
    model = small_model(score_bound=None)
    predictor = model.context.predictor
    whole = predictor.forward

    def spread(target, source):
        target_score, source_score = whole(target, source)
        rows = torch.linspace(-12, 12, target_score.shape[1])
        return target_score + rows[:, None], 40 * source_score

    predictor.forward = spread
    return model


@pytest.mark.parametrize("make", [planted, lambda: small_model(activation="exp"), small_model])
def test_one_map_for_all(make):
    assert seen_by(make(), points=3).similarity_note() == SAME
    assert seen_by(make(), points=1).similarity_note() == EVERYBODYS


@pytest.mark.parametrize("make", [lambda: small_model("dot"), choosy])
def test_a_map_for_each(make):
    torch.manual_seed(0)
    assert seen_by(make(), points=3).similarity_note() == ""
    assert seen_by(make(), points=1).similarity_note() == ""


def test_the_average_is_one_map():
    maps = explain(small_model("average"), photograph(96, 128), classes=True)
    assert maps.similarity_note() == (SAME if len(maps) > 1 else "")
    assert seen_by(small_model("average"), points=4).similarity_note() == SAME


@pytest.mark.parametrize(("moved", "same"), [(0.0, True), (0.07, True), (0.3, False)])
def test_how_much_may_move(moved, same):
    maps = np.zeros((2, 100))
    maps[:, :10] = 0.1
    maps[1, 0] -= moved * 0.1
    maps[1, 1:10] -= moved * 0.1
    maps[1, 50] += moved
    assert nearly_equal(maps, NONE) is same


def test_even_maps_with_a_pattern_each_look_different():
    """A figure stretches its colours over them."""
    maps = np.full((2, 100), 0.01)
    maps[0, ::2] *= 1.02
    maps[1, 1::2] *= 1.02
    assert not nearly_equal(maps, NONE)
    maps[1] = maps[0]
    assert nearly_equal(maps, NONE)


def test_own_entries_do_not_count():
    maps = np.ones((2, 20))
    maps[:, 5] = 30
    maps[0, 5] = 0
    assert nearly_equal(maps, [5, 3])
    assert not nearly_equal(maps, NONE)


@pytest.mark.parametrize("points", [1, 4])
def test_the_figure_says_so_and_has_room_for_it(points):
    maps = seen_by(planted(), points=points)
    figure = maps.figure()
    assert any(maps.similarity_note() in text.get_text() for text in figure.findobj(Text))
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_tightbbox().y1 <= figure.bbox.y1 + 1


@pytest.mark.parametrize("size", [(1, 1), (8, 20)])
def test_hardly_any_neurons(size):
    assert explain(small_model(), photograph(*size), points=[(0, 0)]).similarity_note() == ""
