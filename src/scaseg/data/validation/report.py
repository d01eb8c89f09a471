"""The report of a check: text for people, a dictionary for programs."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

from rich.bar import Bar
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaseg.data.validation.samples import Finding
from scaseg.errors import UserError, plural

Problem = TypeVar("Problem", Finding, UserError)
LISTED = 5  # findings of one kind that are listed before "and 295 more"
WIDEST = 100  # columns: a bar across a large screen says no more

# for terminals without these signs, one for one
ASCII = str.maketrans("▏▎▍▌▋▊▉█─…", "   #####-.")


class Weighting(NamedTuple):
    """Which class weights a report shows: training.class_weights and their range, of a recipe."""

    kind: str
    clamp: tuple[float, float] | None = None
    recipe: str | None = None

    def __str__(self) -> str:
        """In words: what training with the recipe would use."""
        words = {"paper": "the paper's", "inverse": "1 / frequency", "none": "all the same"}
        text = words.get(self.kind, self.kind)
        if self.clamp is not None and self.kind != "none":
            text += f", clamped to {self.clamp[0]:g} to {self.clamp[1]:g}"
        return text if self.recipe is None else f"{text}, as in the recipe {self.recipe}"


PAPER = Weighting("paper")


@dataclass(frozen=True)
class Report:
    """The result of a check; pixels and weights of each class, over the images of `counted`."""

    root: str
    splits: dict[str, int]  # number of images
    sizes: dict[str, tuple[int, int]]  # (height, width) of the smallest, median, largest by area
    classes: tuple[str, ...]
    counted: str
    pixels: tuple[int, ...]
    unlabelled: int
    eta: float | None  # None, like the weights, if no pixel is labelled
    weights: tuple[float, ...] | None
    weighting: str  # which weights they are
    findings: tuple[Finding, ...]
    reading: str = ""  # what the values are taken for, where another reading fits as well

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types; findings by kind, each with every place."""
        plain = asdict(self)
        del plain["findings"]
        for level, findings in (("errors", self.errors), ("warnings", self.warnings)):
            plain[level] = [
                {
                    "problem": kind[0].problem,
                    "remedy": kind[0].remedy,
                    "places": [{"place": one.place, "detail": one.detail} for one in kind],
                }
                for kind in by_kind(findings)
            ]
        return plain


def by_kind(found: Iterable[Problem]) -> list[list[Problem]]:
    """Group findings, or errors, of one kind, in the order in which kinds appear."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for one in found:
        kinds.setdefault((one.problem, one.remedy), []).append(one)
    return list(kinds.values())


def render(
    report: Report, *, width: int = 80, encoding: str = "utf-8", findings_only: bool = False
) -> str:
    """Format a report for a terminal of this width and encoding."""
    width = max(40, min(width, WIDEST))
    parts = [] if findings_only else [_overview(report), _chart(report, width, encoding)]
    parts += [_kind(kind, width) for kind in by_kind(report.errors) + by_kind(report.warnings)]
    if not findings_only:
        errors = plural(len(report.errors), "error") if report.errors else "No errors"
        counts = f"{errors}, {plural(len(report.warnings), 'warning')}."
        parts.append(counts if report.findings else "No problems found.")
    return "\n\n".join(part for part in parts if part)


def _overview(report: Report) -> str:
    rows = [(split, plural(count, "image")) for split, count in report.splits.items()]
    if report.sizes:
        smallest, median, largest = (f"{high} x {wide}" for high, wide in report.sizes.values())
        span = f"all {median}" if smallest == largest else f"{smallest} to {largest}"
        rows.append(("sizes", f"{span} (height x width)"))
        rows += [("median", median)] if smallest != largest else []
    first = max((cell_len(name) for name, _ in rows), default=0)
    return "\n".join([report.root, *(f"  {set_cell_size(a, first)}  {b}" for a, b in rows)])


def _chart(report: Report, width: int, encoding: str) -> str:
    """Draw the classes, most frequent first, with the border of the 85 % / 15 % rule."""
    if report.weights is None or report.eta is None:
        return ""
    total = sum(report.pixels)
    order = [index for index, count in enumerate(report.pixels) if count]
    order.sort(key=lambda index: -report.pixels[index])
    most = report.pixels[order[0]]
    table = Table(box=None, expand=True, pad_edge=False, header_style="")
    table.add_column("class", no_wrap=True, max_width=min(24, width // 3))
    table.add_column(f"labelled pixels of {report.counted}", ratio=1, no_wrap=True)
    for title in ("share", "weight"):
        table.add_column(title, justify="right", no_wrap=True)
    for index in order:
        name = report.classes[index].encode(encoding, "backslashreplace").decode(encoding)
        share = report.pixels[index] / total
        bar = Bar(most, 0, max(report.pixels[index], most / 200))  # what occurs is seen
        table.add_row(Text(name), bar, _percent(share), f"{report.weights[index]:g}")
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    if rare := sum(report.pixels[index] / total < report.eta for index in order):
        border = f" below eta = {report.eta:.3g}: rare ".center(width, "─")
        lines.insert(len(lines) - rare, border)
    lines += textwrap.wrap(f"Weights: {report.weighting}.", width)
    if report.unlabelled:
        share = report.unlabelled / (total + report.unlabelled)
        lines += textwrap.wrap(f"{_percent(share)} of the pixels are unlabelled.", width)
    lines += textwrap.wrap(report.reading, width, break_on_hyphens=False)
    text = "\n".join(lines)
    fits = text.encode(encoding, "ignore").decode(encoding) == text
    return text if fits else text.translate(ASCII)


def _percent(share: float) -> str:
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _kind(kind: list[Finding], width: int) -> str:
    first = kind[0]
    lines = [f"{first.severity}: {first}"]
    if len(kind) > 1:
        lines = [f"{first.severity}, {len(kind)} times: {first.problem}; {first.remedy}"]
        for one in kind[:LISTED]:
            lines.append(f"    {one.place}" + (f": {one.detail}" if one.detail else ""))
        lines += [f"    and {len(kind) - LISTED} more"] if len(kind) > LISTED else []
    lines[0] = textwrap.fill(
        lines[0], width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)
