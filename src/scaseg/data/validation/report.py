"""What a check of a data set found, for people (text) and for programs (a dictionary)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

NAMED = 5  # problems of one kind that are named before "and 295 more"
WIDEST = 100  # columns: a bar across a large screen says no more
_SAID = re.compile(r"(?P<what>[^(;]+?)(?: \((?P<detail>.*)\))?(?:; (?P<remedy>[^)]+))?")
_QUOTED = re.compile(r"'[^']*'")


class Problem(NamedTuple):
    """Something that does not fit. Problems with the same `what` and `remedy` are of one kind.

    An error makes training fail or its result wrong; a warning wants to be looked at.
    """

    place: str  # a file, as a rule
    what: str
    remedy: str
    detail: str = ""  # what this one has of its own
    is_error: bool = True

    @classmethod
    def from_message(cls, place: str, message: str, remedy: str) -> Problem:
        """Take `what (detail); remedy` apart; a quoted name is a detail too."""
        parts = _SAID.fullmatch(message)
        if parts is None:
            return cls(place, message, remedy)
        what, detail = parts["what"], parts["detail"] or ""
        if not detail and (name := _QUOTED.search(what)):
            what, detail = _QUOTED.sub("…", what), name[0].strip("'")
        return cls(place, what, parts["remedy"] or remedy, detail)

    @property
    def line(self) -> str:
        """All of it in one line."""
        if "…" in self.what:
            what = self.what.replace("…", f"'{self.detail}'")
        else:
            what = f"{self.what} ({self.detail})" if self.detail else self.what
        return f"{self.place}: {what}; {self.remedy}"


class Sizes(NamedTuple):
    """Photographs by area, (height, width) each."""

    smallest: tuple[int, int]
    median: tuple[int, int]
    largest: tuple[int, int]


@dataclass(frozen=True)
class Report:
    """All that was found; pixels and weights by class, over the images that `counted` names."""

    root: str
    splits: dict[str, int]  # images of each
    sizes: Sizes | None
    classes: tuple[str, ...]
    counted: str
    pixels: tuple[int, ...]
    unlabelled: int
    eta: float | None  # None, as the weights: no labelled pixel
    weights: tuple[float, ...] | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.is_error)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if not problem.is_error)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON knows things; problems by kind, each with every place."""
        plain = asdict(self)
        plain["sizes"] = self.sizes and self.sizes._asdict()
        for level, problems in (("errors", self.errors), ("warnings", self.warnings)):
            plain[level] = [
                {
                    "what": kind[0].what,
                    "remedy": kind[0].remedy,
                    "places": [{"place": one.place, "detail": one.detail} for one in kind],
                }
                for kind in by_kind(problems)
            ]
        del plain["problems"]
        return plain


def by_kind(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Put problems of one kind together, in the order in which kinds appear."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.what, problem.remedy), []).append(problem)
    return list(kinds.values())


def render(
    report: Report, *, width: int = 80, encoding: str = "utf-8", problems_only: bool = False
) -> str:
    """Write the report for a terminal of so many columns that shows this encoding."""
    signs = Signs.for_encoding(encoding)
    shown = (name.encode(encoding, "backslashreplace").decode(encoding) for name in report.classes)
    report = replace(report, classes=tuple(shown))
    width = max(40, min(width, WIDEST))
    parts = [] if problems_only else [_overview(report), _chart(report, width, signs)]
    for level in (report.errors, report.warnings):
        parts += [_kind(kind, width, signs) for kind in by_kind(level)]
    if not problems_only:
        parts.append(_verdict(report))
    return "\n\n".join(part for part in parts if part)


class Signs(NamedTuple):
    """The signs of a report; a terminal that cannot show them gets ASCII."""

    blocks: str = " ▏▎▍▌▋▊▉█"  # a bar's last cell by eighths
    rule: str = "─"
    eta: str = "η"
    dots: str = "…"

    @classmethod
    def for_encoding(cls, encoding: str) -> Signs:
        try:
            "".join(cls()).encode(encoding)
        except UnicodeEncodeError:
            return cls(" #", "-", "eta", "...")
        return cls()


def _overview(report: Report) -> str:
    rows = [(split, _plural(count, "image")) for split, count in report.splits.items()]
    if report.sizes is not None:
        smallest, median, largest = (f"{high} x {wide}" for high, wide in report.sizes)
        span = f"all {median}" if smallest == largest else f"{smallest} to {largest}"
        rows.append(("sizes", f"{span} (height x width)"))
        rows += [("median", median)] if smallest != largest else []
    first = max((cell_len(name) for name, _ in rows), default=0)
    lines = [f"  {set_cell_size(name, first)}  {said}" for name, said in rows]
    return "\n".join([report.root, *lines])


def _chart(report: Report, width: int, signs: Signs) -> str:
    """Draw the classes, most frequent first, with the border of the 85 % / 15 % rule."""
    total = sum(report.pixels)
    if report.weights is None or report.eta is None or total == 0:
        return ""
    order = sorted(range(len(report.pixels)), key=lambda index: -report.pixels[index])
    order = [index for index in order if report.pixels[index]]
    most = report.pixels[order[0]]
    name_width = max(5, min(max(cell_len(report.classes[i]) for i in order), 24, width // 3))
    weight_width = max(6, *(len(f"{report.weights[i]:g}") for i in order))
    bar_width = width - name_width - 7 - weight_width - 6

    def row(name: str, bar: str, share: str, weight: str) -> str:
        if cell_len(name) > name_width:
            name = set_cell_size(name, name_width - len(signs.dots)) + signs.dots
        cells = set_cell_size(name, name_width), set_cell_size(bar, bar_width)
        return f"{cells[0]}  {cells[1]}  {share:>7}  {weight:>{weight_width}}"

    border = f"below {signs.eta} = {report.eta:.3g}: rare"
    lines = [row("class", f"labelled pixels of {report.counted}", "share", "weight")]
    for position, index in enumerate(order):
        count = report.pixels[index]
        if position and count / total < report.eta <= report.pixels[order[position - 1]] / total:
            lines.append(f" {border} ".center(width, signs.rule))
        bar = _bar(count / most, bar_width, signs.blocks)
        lines.append(
            row(report.classes[index], bar, _percent(count / total), f"{report.weights[index]:g}")
        )
    unlabelled = report.unlabelled / (total + report.unlabelled)
    said = f"{_percent(unlabelled)} of the pixels are unlabelled." if report.unlabelled else ""
    return "\n".join([*lines, *textwrap.wrap(said, width)])


def _bar(share: float, width: int, blocks: str) -> str:
    steps = len(blocks) - 1
    filled = max(1, round(share * width * steps))  # what occurs is seen
    return blocks[-1] * (filled // steps) + blocks[filled % steps].rstrip()


def _percent(share: float) -> str:
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _kind(kind: list[Problem], width: int, signs: Signs) -> str:
    first = kind[0]
    level = "error" if first.is_error else "warning"
    if len(kind) == 1:
        return _wrap(f"{level}: {first.line}", width)
    what = first.what.replace("…", signs.dots)
    lines = [_wrap(f"{level}, {len(kind)} times: {what}; {first.remedy}", width)]
    for one in kind[:NAMED]:
        lines.append(f"    {one.place}" + (f": {one.detail}" if one.detail else ""))
    if len(kind) > NAMED:
        lines.append(f"    and {len(kind) - NAMED} more")
    return "\n".join(lines)


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(
        text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _verdict(report: Report) -> str:
    errors, warnings = len(report.errors), len(report.warnings)
    if not errors and not warnings:
        return "No problems found."
    return f"{_plural(errors, 'error') if errors else 'No errors'}, {_plural(warnings, 'warning')}."


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
