"""What the demo found: a table, a picture, and a page that opens without a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from string import Template
from typing import NamedTuple

from matplotlib.figure import Figure

from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from scaseg.explanation.disagreement import Disagreement
from scaseg.explanation.maps import DependencyMaps
from scaseg.explanation.occlusion import Occlusion
from scaseg.explanation.page import draw_disagreements
from scaseg.explanation.selectivity import Mean, Selectivity
from scaseg.io.atomic import whole_file, write_text
from scaseg.metrics import percent

PAGE, PICTURE = "report.html", "picture.png"
TITLE = "The rest of the scene decides what the sand is"
COLUMNS = ("context", "PPA/aAcc", "CAA/mAcc", "mIoU", "IoU of sand", "parameters", "training")
LEARNED = 50  # mean IoU of sand below which too little was learned to show anything


class Row(NamedTuple):
    """Results of one context, in percent; `sand`: mean IoU of the four kinds of sand."""

    context: str
    scores: dict[str, float]  # PPA, CAA, mIoU
    sand: float
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Findings:
    """All that the demo measured; the disagreements are of the first row's model and the last's."""

    rows: Sequence[Row]
    disagreements: Sequence[Disagreement]
    maps: DependencyMaps
    selectivity: Selectivity
    occlusion: Occlusion
    seconds: float


def table(rows: Sequence[Row]) -> str:
    """Return the table for a terminal of 80 columns."""
    lines = [COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def write_report(findings: Findings, folder: Path) -> None:
    """Write report.html with everything in it, and picture.png.

    picture.png is of the disagreements, or of the maps where there are none.
    """
    maps, pictures = _png(findings.maps.figure(width=13)), []
    first, last = findings.rows[0].context, findings.rows[-1].context
    if findings.disagreements:
        legend = (ContextScenesGlobal.classes, ContextScenesGlobal.palette)
        figure = draw_disagreements(findings.disagreements, *legend, names=(first, last))
        pictures.append(_png(figure))
    with whole_file(folder / PICTURE) as temporary:
        temporary.write_bytes([*pictures, maps][0])
    template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    filled = template.substitute(
        title=TITLE,
        table=_html_table(findings.rows),
        picture="".join(_embedded(png, "image, truth, predictions, map") for png in pictures),
        maps=_embedded(maps, "dependency maps of several points"),
        first=first,
        last=last,
        summary=html.escape(_summary(findings)),
        selectivity=html.escape(findings.selectivity.table()),
        occlusion=html.escape(findings.occlusion.table()),
        seconds=f"{findings.seconds:.0f}",
    )
    write_text(folder / PAGE, filled)


def _cells(row: Row) -> tuple[str, ...]:
    shares = (f"{value:.1f}" for value in (*row.scores.values(), row.sand))
    return row.context, *shares, f"{row.parameters:,}", f"{row.seconds:.0f} s"


def _best(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: row.scores["mIoU"])


def _summary(findings: Findings) -> str:
    """Say what the table says, whichever way it came out."""
    first, last, drop = findings.rows[0], findings.rows[-1], findings.occlusion
    return (
        f"On scenes that no network has seen, {first.context} has a mean IoU of {first.sand:.0f} "
        f"on sand, {last.context} {last.sand:.0f}. Take away the "
        f"{_share(drop.removed)} % of the neurons that a map of {last.context} points to, "
        f"and the probability of the decision falls by {_share(drop.pointed)} points; take "
        f"away as many at random, and it falls by {_share(drop.random)}."
        + ("" if last.sand > LEARNED else " So little training shows nothing yet: take more.")
    )


def _share(share: Mean) -> str:
    text = "n/a" if share.mean is None else percent(share.mean, 0)
    return "0" if text == "-0" else text


def _html_table(rows: Sequence[Row]) -> str:
    lines = ["".join(f"<th>{name}</th>" for name in COLUMNS)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) for row in rows]
    marks = ["", *(' class="best"' if row is _best(rows) else "" for row in rows)]
    body = (f"<tr{mark}>{line}</tr>" for mark, line in zip(marks, lines, strict=True))
    return f"<table>{''.join(body)}</table>"


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _embedded(png: bytes, about: str) -> str:
    code = base64.b64encode(png).decode("ascii")
    return f'<img alt="{html.escape(about)}" src="data:image/png;base64,{code}">'
