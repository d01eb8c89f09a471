"""Context instead of depth: the same contexts behind backbones that were cut off early."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from making.marks import NOT_YET, Page, maker
from making.pairs import verdict
from making.studies import Study
from scaseg.comparison.statistics import Summary
from scaseg.comparison.tables import markdown_table, mean_and_error, with_interval
from scaseg.config.model import ModelConfig
from scaseg.io.table import read_rows
from scaseg.models.build import outline_model
from scaseg.plots.figures import DARK, save_figure
from scaseg.registry import BACKBONES

NAMES = ("none", "average", "sca", "object")
STYLES = dict(zip(NAMES, ("o:", "s--", "D-", "^-"), strict=True))
COLORS = dict(zip(NAMES, ("#666666", "#d98c00", "#1f5fa8", "#a8321f"), strict=True))
HEIGHT, WIDTH = 240, 320  # of Stanford Background's photographs
SIZES = {"vgg16": range(2, 6), "mobilenet_v2": range(3, 8)}
FOLDER, PICTURE = "depth", "depth.png"
TIMES = "cpu.csv"  # by benchmarks/depth.py
# the whole VGG16 was trained by the same recipe for the comparison of all contexts
WHOLE = {("vgg16", 5): "rivals/stanford_background"}
FROZEN = {7: "frozen/scores/test"}  # of the whole MobileNetV2


class Cut(NamedTuple):
    """A backbone of so many stages, and what was measured of it."""

    backbone: str
    stages: int
    study: Study

    @property
    def title(self) -> str:
        return f"{self.backbone}, {self.stages} of {SIZES[self.backbone][-1]} stages"

    @property
    def summaries(self) -> dict[str, Summary]:
        return {one.name: one for one in self.study.summaries if one.name in NAMES}


def cuts(studies: Mapping[str, Study]) -> list[Cut]:
    """Those with rows, from the one that sees least."""
    known = {
        (backbone, stages): WHOLE.get((backbone, stages), f"{FOLDER}/{backbone}_{stages}")
        for backbone, sizes in SIZES.items()
        for stages in sizes
    }
    return [Cut(*key, studies[name]) for key, name in known.items() if name in studies]


def reach(backbone: nn.Module) -> int:
    """Pixels of a side of what a neuron sees.

    >>> reach(nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2, 2), nn.Conv2d(1, 1, 3, dilation=2)))
    12
    """
    sees = step = 1
    for layer in backbone.modules():
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            kernel, dilation, stride = (
                value if isinstance(value, int) else value[0]
                for value in (layer.kernel_size, layer.dilation, layer.stride)
            )
            sees += (int(kernel) - 1) * int(dilation) * step
            step *= int(stride)
    return sees


def facts(cut: Cut) -> tuple[int, int]:
    """How far its backbone sees, and the multiply-adds of the network without context."""
    options = {"stages": cut.stages}
    names = tuple(map(str, range(8)))
    config = ModelConfig(
        names, cut.backbone, context="none", head="compact", backbone_options=options
    )
    model = outline_model(config).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, HEIGHT, WIDTH, device="meta"))
    return reach(model.backbone), counter.get_total_flops() // 2


def times(folder: Path) -> dict[tuple[str, int, str], float]:
    """Milliseconds of a photograph on one core, by backbone, stages and context."""
    return {
        (row["backbone"], int(row["stages"]), row["context"]): float(row["milliseconds"])
        for row in read_rows(folder / TIMES)
    }


@maker("depth")
def depth(page: Page) -> str:
    """Every cut and context: what it sees and costs, mIoU, and what another stage would bring."""
    found = cuts(page.studies)
    if len(found) < 2:
        return NOT_YET
    place = page.root / "docs" / "results" / FOLDER
    known, rows = times(place), []
    for cut in found:
        sees, operations = facts(cut)
        own = cut.summaries
        sizes = [one.parameters / 1e6 for one in own.values() if one.parameters]
        taken = [known[key] for name in own if (key := (cut.backbone, cut.stages, name)) in known]
        rows.append(
            [
                cut.title,
                sees,
                f"{operations / 1e9:.1f}",
                f"{min(sizes):.1f} to {max(sizes):.1f}",
                f"{min(taken):.0f} to {max(taken):.0f}" if taken else "",
                *(mean_and_error(own[name], "mIoU") if name in own else "" for name in NAMES),
            ]
        )
    head = ["backbone", "sees, pixels", "multiply-adds, G", "parameters, M", "ms, one core", *NAMES]
    note = (
        f"Test mIoU, mean ± standard error over seeds. Multiply-adds of one photograph of {WIDTH} "
        f"x {HEIGHT} without context; its milliseconds on one core of a CPU "
        f"([{TIMES}]({page.link(place / TIMES)})). The head's window reaches 96 pixels further to "
        "each side."
    )
    drawn = (
        f"![mIoU over what the backbone sees, parameters and time]({page.link(place / PICTURE)})"
    )
    return "\n\n".join(
        [markdown_table(head, rows, note).strip(), drawn, "\n".join(_instead(found))]
    )


def _instead(found: list[Cut]) -> list[str]:
    """For each cut, what the best context adds, beside what another stage adds instead."""
    lines = []
    for cut, deeper in pairwise(found):
        if cut.backbone != deeper.backbone or not {"none"} < set(cut.summaries):
            continue
        plain, more = cut.summaries["none"], deeper.summaries["none"]
        best = max((one for one in cut.summaries.values()), key=lambda one: one.mean["mIoU"])
        gain = best.difference["mIoU"]
        if gain is None:
            lines.append(f"- {cut.title}: no context adds anything.")
            continue
        step = more.mean["mIoU"] - plain.mean["mIoU"]
        lines.append(
            f"- {cut.title}: `{best.name}` adds most, {with_interval(gain)} points "
            f"({verdict(gain)}); {deeper.stages} stages without context add {step:+.2f}."
        )
    return lines


@maker("frozen-depth")
def frozen_depth(page: Page, *names: str) -> str:
    """MobileNetV2 cut off early and frozen: cost, mIoU of some contexts, what each adds.

    names: the second is compared with the first, the others with the second.
    """
    found = {
        stages: page.studies[name]
        for stages in range(4, 8)
        if (name := FROZEN.get(stages, f"frozen/stages_{stages}/test")) in page.studies
    }
    rows, lines = [], []
    for stages, study in found.items():
        backbone = BACKBONES["mobilenet_v2"](stride=16, stages=stages).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            backbone(torch.zeros(1, 3, HEIGHT, WIDTH))
        own = {one.name: one for one in study.summaries}
        cost = (f"{counter.get_total_flops() / 2e9:.2f}", f"{size(backbone) / 1e6:.2f}")
        scores = (mean_and_error(own[name], "mIoU") if name in own else "" for name in names)
        rows.append([f"{stages} of 7 stages", reach(backbone), *cost, *scores])
        pairs = {(pair.first, pair.second): pair.difference for pair in study.pairs}
        said = [
            f"`{name}` against `{base}` {with_interval(pairs[base, name])}"
            for name, base in zip(names[1:], [names[0], *[names[1]] * len(names)], strict=False)
            if (base, name) in pairs
        ]
        lines.append(f"- {stages} of 7 stages: {', '.join(said)}.")
    head = ["backbone", "sees, pixels", "multiply-adds, G", "parameters, M", *names]
    note = (
        f"Test mIoU, mean ± standard error over seeds; cost of the frozen part, of {WIDTH} x "
        f"{HEIGHT} pixels. Differences paired by seed, with 95 % confidence intervals."
    )
    table = markdown_table(head, rows, note).strip()
    return f"{table}\n\n" + "\n".join(lines) if rows else NOT_YET


def size(module: nn.Module) -> int:
    """How many parameters it has."""
    return sum(one.numel() for one in module.parameters())


def write_depth(studies: Mapping[str, Study], path: Path) -> None:
    """Draw mIoU over how far the backbone sees, over parameters and, if measured, over time."""
    taken = times(path.parent)
    titles = ["backbone sees, pixels", "parameters, M"]
    titles += ["a photograph on one core, ms"] if taken else []
    figure = Figure(figsize=(9, 4), layout="constrained", dpi=120)
    panels = figure.subplots(1, len(titles), sharey=True)
    known = [(cut, facts(cut)[0]) for cut in cuts(studies)]
    for backbone in SIZES:
        for name in NAMES:
            own = [
                (sees, one.parameters / 1e6, taken.get((backbone, cut.stages, name), nan), one)
                for cut, sees in known
                if cut.backbone == backbone and (one := cut.summaries.get(name)) and one.parameters
            ]
            for axes, places in zip(panels, list(zip(*own, strict=True))[:3], strict=False):
                bars = [one.bar for *_, one in own]
                spread = [[m - low for m, low, _ in bars], [high - m for m, _, high in bars]]
                axes.errorbar(
                    places,
                    [m for m, *_ in bars],
                    yerr=spread,
                    fmt=STYLES[name],
                    color=COLORS[name],
                    fillstyle="full" if backbone == "vgg16" else "none",
                    markersize=5,
                    capsize=2,
                    label=name if backbone == "vgg16" else f"{name}, {backbone}",
                )
    for axes, title in zip(panels, titles, strict=True):
        axes.set_xlabel(title, fontsize=10)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mIoU, %", fontsize=10)
    panels[0].set_title("mean ± standard error", fontsize=9, color=DARK, loc="left")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=8, loc="outside upper center", ncols=4)
    save_figure(figure, path)
