"""What the demo found, for people: a table, a picture, a page that opens without a network."""

from __future__ import annotations

import base64
import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from PIL import Image

from scaseg.explanation.disagreement import Comparison
from scaseg.explanation.figure import draw_dependency_maps as draw_maps
from scaseg.explanation.maps import DependencyMaps
from scaseg.explanation.occlusion import Occlusion
from scaseg.explanation.page import draw_comparisons
from scaseg.explanation.selectivity import Selectivity
from scaseg.explanation.statistics import Mean
from scaseg.plots.palette import Palette

PAGE, PICTURE, REPORT_PICTURE = "report.html", "picture.png", "report.png"
LEARNED = 50  # mean IoU of sand below which nothing was learned that is worth a word
WIDTH = 1500  # pixels of report.png


class Row(NamedTuple):
    """What one context came to, in percent; `sand`: mean IoU of the four kinds of sand."""

    context: str
    scores: dict[str, float]  # PPA, CAA, mIoU
    sand: float
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Findings:
    """All that the demo measured; `telling` compares the first of `names` with the second."""

    rows: Sequence[Row]
    telling: Sequence[Comparison]
    names: tuple[str, str]
    classes: tuple[str, ...]
    palette: Palette
    maps: DependencyMaps
    selectivity: Selectivity
    occlusion: Occlusion
    seconds: float


COLUMNS = ("context", "PPA/aAcc", "CAA/mAcc", "mIoU", "IoU of sand", "parameters", "training")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, as text."""
    shares = (f"{value:.1f}" for value in (*row.scores.values(), row.sand))
    return row.context, *shares, f"{row.parameters:,}", f"{row.seconds:.0f} s"


def best(rows: Sequence[Row]) -> Row:
    """The row with the highest mIoU."""
    return max(rows, key=lambda row: row.scores["mIoU"])


def table(rows: Sequence[Row]) -> str:
    """The table for a terminal of 80 columns."""
    lines = [COLUMNS, *(cells(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(COLUMNS))]
    text = []
    for line in lines:
        first, *others = (
            f"{cell:<{width}}" if index == 0 else f"{cell:>{width}}"
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text.append("  ".join([first, *others]).rstrip())
    return "\n".join(text)


def write_report(findings: Findings, folder: Path) -> None:
    """Write picture.png, report.html with everything in it, and report.png, the same to look at."""
    figures = _figures(findings)
    (folder / PICTURE).write_bytes(figures[0])
    *pictures, maps = figures
    page = Template(_PAGE).substitute(
        style=_STYLE,
        table=_html_table(findings.rows),
        picture="".join(
            _embedded(png, "image, truth, two predictions, a dependency map") for png in pictures
        ),
        maps=_embedded(maps, "dependency maps of several points"),
        first=html.escape(findings.names[0]),
        last=html.escape(findings.names[1]),
        said=html.escape(_in_words(findings)),
        selectivity=html.escape(findings.selectivity.table()),
        occlusion=html.escape(findings.occlusion.table()),
        seconds=f"{findings.seconds:.0f}",
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    _stack([_table_picture(findings), *figures]).save(folder / REPORT_PICTURE)


def _in_words(findings: Findings) -> str:
    """Say what the table says, whichever way it came out."""
    by_name = {row.context: row for row in findings.rows}
    first, last = (by_name[name] for name in findings.names)
    drop = findings.occlusion
    return (
        f"On scenes that no network has seen, {first.context} has a mean IoU of {first.sand:.0f} "
        f"on sand, {last.context} {last.sand:.0f}. Take away the "
        f"{_percent(drop.removed)} % of the neurons that a map of {last.context} points to, "
        f"and the probability of the decision falls by {_percent(drop.pointed)} points; take "
        f"away as many at random, and it falls by {_percent(drop.random)}."
        + ("" if last.sand > LEARNED else " So little training shows nothing yet: take more.")
    )


def _percent(share: Mean) -> str:
    return "n/a" if share.mean is None else f"{100 * share.mean + 0.0:.0f}".replace("-0", "0")


def _figures(findings: Findings) -> list[bytes]:
    """The picture, and the maps of several points."""
    found = []
    if findings.telling:
        found.append(
            draw_comparisons(
                findings.telling, findings.classes, findings.palette, names=findings.names
            )
        )
    found.append(draw_maps(findings.maps, width=13))
    return [_png(figure) for figure in found]


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _embedded(png: bytes, about: str) -> str:
    code = base64.b64encode(png).decode("ascii")
    return f'<img alt="{html.escape(about)}" src="data:image/png;base64,{code}">'


def _html_table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    body = ""
    for row in rows:
        start = '<tr class="best">' if row is best(rows) else "<tr>"
        body += start + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row)) + "</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _table_picture(findings: Findings) -> bytes:
    """The top of the page as a picture: title, what came out, the table."""
    lines = [COLUMNS, *(cells(row) for row in findings.rows)]
    words = textwrap.wrap(_in_words(findings), 150)
    height = 0.75 + 0.22 * len(words) + 0.34 * len(lines)
    figure = Figure(figsize=(13, height))

    def write(x: float, down: float, text: str, **style: Any) -> None:
        figure.text(x / 13, 1 - down / height, text, va="top", **style)

    write(0.2, 0.15, "What sand is, the rest of the scene tells", fontsize=17)
    write(0.2, 0.6, "\n".join(words), fontsize=10.5, color="#444444", linespacing=1.4)
    top = 0.75 + 0.22 * len(words)
    for number, line in enumerate(lines):
        strong = number == 0 or findings.rows[number - 1] is best(findings.rows)
        weight = "bold" if strong else "normal"
        for column, cell in enumerate(line):
            x, align = (0.2, "left") if column == 0 else (1.2 + 1.9 * column, "right")
            write(x, top + 0.34 * number, cell, fontsize=11.5, ha=align, weight=weight)
    return _png(figure)


def _stack(pictures: Sequence[bytes]) -> Image.Image:
    """Put pictures below each other, at one width."""
    opened = [Image.open(BytesIO(png)).convert("RGB") for png in pictures]
    scaled = [one.resize((WIDTH, round(one.height * WIDTH / one.width))) for one in opened]
    page = Image.new("RGB", (WIDTH, sum(one.height for one in scaled)), "white")
    top = 0
    for one in scaled:
        page.paste(one, (0, top))
        top += one.height
    return page


_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #222; background: #fff; max-width: 1080px;
       margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; } h2 { margin: 2rem 0 .4rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } tr.best { font-weight: 600; }
.scroll { overflow-x: auto; } img { width: 100%; height: auto; display: block; }
pre { background: #f5f4f0; padding: .8rem 1rem; overflow-x: auto; font-size: .88rem; }
.small { color: #666; font-size: .9rem; }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>scaseg demo</title><style>$style</style></head><body>
<h1>What sand is, the rest of the scene tells</h1>
<p>Every scene is a stretch of sand with things on it. One thing is real; the others are mirages,
paler than it. The real one decides for all of the sand: a cactus makes it <em>desert</em>, a boat
<em>beach</em>, a palm <em>oasis</em>, a tent <em>camp</em>. The sand itself looks alike in all of
them, so a network without context can only guess. Three networks were trained, the same but for
their context: <b>none</b>; the plain <b>average</b> of all other neurons, which the mirages
disturb; and <b>sca</b>, whose neurons weigh the others by coefficients predicted from the
image.</p>
<div class="scroll">$table</div>
<p>$said</p>
<h2>Where $last is right and $first is not</h2>
<p>The scenes with the largest such regions. The circle marks one; the map at the right shows what
$last's neuron in its middle depends on.</p>
$picture
<h2>What a neuron depends on</h2>
<p>Four neurons of one scene, on one scale: the first in the sky, the others on the sand.</p>
$maps
<h2>Measured, not only admired</h2>
<pre>$selectivity</pre>
<pre>$occlusion</pre>
<p class="small">Made by <code>scaseg demo</code> in $seconds s on this machine's CPU. The scenes
are generated, seeded and the same everywhere; the models lie beside this page:
<code>scaseg evaluate --model sca</code>. The paper's predictor ranks the others in one order for
all neurons (rank correlation 1, but for rounding); they differ in how sharply they choose. Where
every neuron needs a context of its own that is not enough: see the documentation's page on context
scenes.</p>
</body></html>
"""
