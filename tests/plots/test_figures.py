import csv
import warnings

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from scaseg.errors import UserError
from scaseg.io.table import read_rows
from scaseg.metrics import ConfusionMatrix
from scaseg.plots.figures import (
    confusion_figure,
    per_class_figure,
    save_figure,
    write_evaluation,
)


def confusion(classes, absent=()):
    random = np.random.default_rng(classes)
    matrix = ConfusionMatrix(classes)
    counts = random.integers(0, 50, (classes, classes)) + 900 * np.eye(classes, dtype=int)
    counts[list(absent)] = 0
    matrix.counts = torch.from_numpy(counts)
    return matrix


def names(count):
    return [
        f"class {index}, of some length" if index % 7 == 3 else f"c{index}"
        for index in range(count)
    ]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize(("classes", "absent"), [(1, ()), (1, (0,)), (8, (2, 5)), (171, (0, 170))])
def test_files_are_whole(tmp_path, classes, absent):
    matrix = confusion(classes, absent)
    written = write_evaluation(matrix, names(classes), tmp_path / "new" / "folder")
    assert [path.name for path in written] == [
        *("confusion.csv", "confusion.png", "per_class.png", "per_class.csv")
    ]
    per_class = read_rows(written[3])
    assert [row["class"] for row in per_class] == names(classes)
    for index, row in enumerate(per_class):
        pixels, right = int(matrix.counts[index].sum()), int(matrix.counts[index, index])
        assert int(row["pixels"]) == pixels
        assert (row["accuracy"] == "") == (row["IoU"] == "") == (pixels == 0)
        if pixels:
            assert float(row["accuracy"]) == pytest.approx(100 * right / pixels)
    for path in written[1:3]:
        with Image.open(path) as picture:
            picture.load()
            width, height = picture.size
            colors = picture.convert("RGB").reduce(3).getcolors(2**24)
        assert min(width, height) >= 200
        assert max(width, height) <= 8000
        assert len(colors) > 20
    with written[0].open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == [row[0] for row in rows[1:]] == names(classes)
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == matrix.counts.tolist()


def test_any_class_name_can_be_shown(tmp_path):
    classes = ["a $ and b", "$x^2", r"$\no such formula$", 'quoted "name", comma', "ü/ä", " "]
    write_evaluation(confusion(6), classes, tmp_path)
    ticks = confusion_figure(confusion(6), classes).axes[0].get_yticklabels()
    assert [tick.get_text() for tick in ticks] == classes


@pytest.mark.parametrize("draw", [confusion_figure, per_class_figure])
def test_long_names_leave_room_for_the_picture(draw):
    """A class of CORINE, the European land cover."""
    corine = "Land principally occupied by agriculture, with areas of natural vegetation"
    figure = draw(confusion(5), ["sea", "vineyards", corine, "pastures", "bog"])
    FigureCanvasAgg(figure).draw()
    box = figure.axes[0].get_position()
    assert box.width > 0.3


def test_letters_come_from_any_font_that_has_them(tmp_path):
    """Script capitals lie in fonts that matplotlib brings, but not in its usual one."""
    classes = ["\N{MATHEMATICAL SCRIPT CAPITAL A}", "b"]
    figure = confusion_figure(confusion(2), classes)
    save_figure(figure, tmp_path / "drawn.png")
    tick = figure.axes[0].get_yticklabels()[0]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure.savefig(tmp_path / "again.png")
    assert not said, said[0].message
    assert len(tick.get_fontfamily()) > 1
    unknown = confusion_figure(confusion(2), ["\U000f0000", "b"])  # of nobody: a box, no warning
    save_figure(unknown, tmp_path / "box.png")


def test_shares_are_of_the_true_class():
    matrix = ConfusionMatrix(3)
    matrix.counts = torch.tensor([[75, 25, 0], [0, 0, 0], [1, 0, 999]])
    figure = confusion_figure(matrix, ["sky", "sea", "tree"])
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown[0], [75, 25, 0])
    assert np.ma.getmaskarray(shown)[1].all()  # nothing is known of what does not occur
    colors = figure.axes[0].images[0].to_rgba(shown)
    assert colors[1, 0, 3] == 1
    assert (colors[1, 0] != colors[0, 2]).any()  # and that is not 0 %
    assert texts(figure) == ["75", "25", "100"]


def test_classes_come_best_first_and_the_absent_last():
    matrix = ConfusionMatrix(4)
    matrix.counts = torch.tensor([[50, 0, 50, 0], [0, 0, 0, 0], [0, 0, 100, 0], [0, 100, 0, 0]])
    figure = per_class_figure(matrix, ["half", "never", "good", "lost"])
    axes = figure.axes[0]
    from_above = [tick.get_text() for tick in axes.get_yticklabels()][::-1]
    assert from_above == ["good", "half", "lost", "never"]
    assert axes.get_title() == "PPA 50.0   CAA 50.0   mIoU 38.9"
    said = texts(figure)
    column = said.index("IoU")
    assert said[column + 1 : column + 5] == ["n/a", "0.0", "50.0", "66.7"]
    column = said.index("acc.")
    assert said[column + 1 : column + 5] == ["n/a", "0.0", "50.0", "100.0"]
    assert said[-1] == "does not occur"


def test_nothing_labelled_is_said():
    figure = per_class_figure(ConfusionMatrix(2), ["a", "b"])
    assert figure.axes[0].get_title() == "PPA n/a   CAA n/a   mIoU n/a"


def overlapping(artists, renderer):
    boxes = [artist.get_window_extent(renderer) for artist in artists]
    return [
        (a.get_text(), b.get_text())
        for index, (a, first) in enumerate(zip(artists, boxes, strict=True))
        for b, second in list(zip(artists, boxes, strict=True))[index + 1 :]
        if first.overlaps(second)
    ]


@pytest.mark.parametrize("draw", [confusion_figure, per_class_figure])
@pytest.mark.parametrize("classes", [1, 33])
def test_no_text_lies_over_another_or_beyond_the_edge(draw, classes):
    figure = draw(confusion(classes, range(classes // 8)), names(classes))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    axes = figure.axes[0]
    written = [
        axes.title,
        axes.xaxis.label,
        axes.yaxis.label,
        *axes.get_xticklabels(),
        *axes.get_yticklabels(),
        *axes.texts,
    ]
    written = [text for text in written if text.get_text()]
    assert overlapping(written, renderer) == []
    for text in written:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_figures_are_saved_by_the_suffix_of_their_file(tmp_path, suffix, start):
    for path in (tmp_path / f"figure.{suffix}", tmp_path / "figure"):
        save_figure(Figure((3, 2)), path, format=None if path.suffix else suffix)
        assert path.read_bytes().startswith(start)
    assert len(list(tmp_path.iterdir())) == 2


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"figure.bmp: unknown format 'bmp'; give png, pdf, svg"):
        save_figure(Figure(), tmp_path / "figure.bmp")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = confusion_figure(confusion(2), names(2))
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
