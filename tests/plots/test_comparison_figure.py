"""The figure of a comparison: a line a variant."""

import statistics

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from scaseg.plots.figures import GRAY, comparison_figure, save_figure
from tests.plots.test_figures import overlapping

LONG = "sca:pair_channels=64:activation=exp:backend=linear"
FEW = ["none", "average", "sca", "dot"]


def variants(count):
    """Short names and long ones, and one that matplotlib would take for a formula."""
    more = [f"sca:layers={layers}:hidden={2**layers}" for layers in range(count)]
    return [*FEW, LONG, r"sca:$\no$=1", *more][:count]


def measured(names, *, seeds=3, folds=(None,), collapsed=()):
    """What `scaseg compare` hands over, of runs that differ by little."""
    values = {
        name: {
            (fold, seed): 70.0
            + 2 * (fold or 0)
            + (7 * place + 3 * seed) % 5 / 10
            # a collapse takes 20 points off
            - 20 * (name in collapsed)
            for fold in folds
            for seed in range(seeds)
        }
        for place, name in enumerate(names)
    }
    means, differences = {}, {}
    for name, own in values.items():
        middle = statistics.fmean(own.values())
        error = 0.2 if len(own) > 1 else 0.0
        means[name] = (middle, middle - error, middle + error)
        if name != names[0]:
            gain = middle - means[names[0]][0]
            differences[name] = (gain, gain - 3 * error, gain + 3 * error)
    return values, {"means": means, "differences": differences}


def drawn(names, **how):
    values, bars = measured(names, **how)
    return comparison_figure(values, **bars)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def points(axes):
    """The runs of each line that has some, by line."""
    lines = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
    return {round(line.get_ydata()[0]): list(line.get_xdata()) for line in lines}


def arrows(axes):
    return [
        (round(line.get_ydata()[0]), line.get_marker())
        for line in axes.lines
        if line.get_marker() in ("<", ">")
    ]


def test_a_long_name_of_the_first_is_not_cut_off():
    figure = drawn([LONG, "none", "sca"])
    assert figure.axes[1].get_xlabel().replace("\n", " ") == f"mIoU against {LONG}".replace(
        ":", ", "
    )


def shown(axes):
    """Titles and ticks; those beyond the limits, or of the axis that a twin has too, are not."""
    yield axes.title
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_visible():
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            yield axis.label
            for tick in ticks:
                yield tick.label1 if tick.label1.get_visible() else tick.label2


@pytest.mark.parametrize(
    "names",
    [variants(count) for count in (1, 2, 5, 30)] + [[LONG, *FEW], [LONG + LONG[3:], *FEW]],
    ids=lambda names: f"{len(names)}-{names[0][:5]}",
)
def test_no_text_lies_over_another_or_beyond_the_edge(names):
    figure = drawn(names, folds=(1, 2), collapsed=["average"])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    written = [text for axes in figure.axes for text in shown(axes) if text.get_text()]
    assert len(written) > 2 * len(names)
    assert overlapping(written, canvas.get_renderer()) == []
    for text in written:
        box = text.get_window_extent()
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text


@pytest.mark.parametrize(("count", "height"), [(2, 400), (14, 1000), (30, 1700)])
def test_a_page_holds_many(tmp_path, count, height):
    values, bars = measured(variants(count))
    save_figure(comparison_figure(values, **bars), tmp_path / "compare.png")
    with Image.open(tmp_path / "compare.png") as picture:
        assert picture.width <= 1700
        assert picture.height <= height


def test_a_line_has_every_run_every_pair_and_their_numbers():
    values = {name: {(None, 0): 70.0 + place} for place, name in enumerate(variants(9))}
    values["none"][None, 1] = 71.0
    values["average"][None, 2] = 80.0  # nothing to pair with
    figure = comparison_figure(
        values,
        means=dict.fromkeys(values, (70, 70, 70)) | {"none": (70.5, 70, 71)},
        differences={"average": (1, 0.5, 1.5), "sca": (2, 2, 2)},
        title="every run, and more",
    )
    runs, pairs, means, differences = figure.axes
    assert labels(runs.yaxis)[:2] == ["none", "average"]
    assert labels(runs.yaxis)[4:6] == [
        "sca, pair_channels=64, activation=exp,\nbackend=linear",
        r"sca, $\no$=1",
    ]
    assert runs.get_title() == "every run, and more"
    assert runs.get_ylim()[0] > runs.get_ylim()[1]  # the first on top
    assert points(runs) == {row: list(own.values()) for row, own in enumerate(values.values())}
    assert points(pairs) == {row: [row] for row in range(1, 9)}
    assert labels(means.yaxis)[:2] == ["70.50 ± 0.50", "70.00"]
    assert labels(differences.yaxis)[:4] == ["", "+1.00 [+0.50, +1.50]", "+2.00", ""]


@pytest.mark.parametrize(("count", "joined"), [(3, 4), (9, 0)])
def test_runs_of_one_fold_and_seed_are_joined_where_variants_are_few(count, joined):
    figure = drawn(variants(count), seeds=2, folds=(1, 2))
    lines = [line for line in figure.axes[0].lines if line.get_color() == GRAY]
    assert sum(len(line.get_xdata()) == count for line in lines) == joined


def test_one_that_collapsed_is_an_arrow_and_hides_nobody():
    names = variants(9)
    usual = drawn(names, folds=(1, 2, 3))
    figure = drawn(names, folds=(1, 2, 3), collapsed=[LONG])
    for panel, other in zip(figure.axes[:2], usual.axes[:2], strict=True):
        assert panel.get_xlim() == pytest.approx(other.get_xlim(), abs=0.5)
        assert arrows(panel) == [(4, "<"), (4, "<")]  # its runs, and their mean
        assert arrows(other) == []
    assert labels(figure.axes[3].yaxis)[4].startswith("-19.87 [")


def test_a_single_run_that_collapsed_hides_nobody_either():
    values, bars = measured(variants(9), seeds=9)
    values["sca"][None, 1] = 20.0
    figure = comparison_figure(values, **bars)
    assert figure.axes[0].get_xlim()[0] > 60
    assert arrows(figure.axes[0]) == [(2, "<")]
    assert arrows(figure.axes[1]) == [(2, "<")]


def test_what_is_near_is_never_cut_off():
    """Where most are equal to the digit, three points are no collapse."""
    values = {name: {(None, 0): 70.0} for name in variants(9)} | {"dot": {(None, 0): 72.5}}
    means = {name: 3 * (own[None, 0],) for name, own in values.items()}
    figure = comparison_figure(values, means=means, differences={"dot": (2.5, 2.5, 2.5)})
    assert arrows(figure.axes[0]) == arrows(figure.axes[1]) == []
    assert figure.axes[0].get_xlim()[1] > 72.5


def test_the_first_is_never_cut_off():
    """Where the others are nearly equal, and it is not: they are compared with it."""
    middles = {"none": 24.0, "cells": 19.32, "sca": 19.27}
    values = {name: {(None, 0): middle} for name, middle in middles.items()}
    means = {name: 3 * (middle,) for name, middle in middles.items()}
    differences = {name: 3 * (middles[name] - 24,) for name in ("cells", "sca")}
    figure = comparison_figure(values, means=means, differences=differences)
    assert arrows(figure.axes[0]) == arrows(figure.axes[1]) == []


def test_without_pairs_there_is_one_panel():
    values, bars = measured(variants(9))
    figure = comparison_figure(values, means=bars["means"], differences={})
    assert len(figure.axes) == 2  # the other holds the numbers
