"""The texts of marks that bring several studies together: README's table, the overview."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from making.blocks import apart
from making.marks import NOT_YET, Page, maker
from making.pairs import verdict
from making.studies import Study, in_order
from scaseg.comparison.results import RESULTS
from scaseg.comparison.statistics import METRICS
from scaseg.comparison.tables import SCORES, TABLE, markdown_table, mean_and_error, with_interval
from scaseg.errors import UserError

SCENES = {
    "context_scenes/global": "context scenes, global",
    "context_scenes/selective": "context scenes, selective",
}
PHOTOGRAPHS = {
    "stanford_background_folds": "Stanford Background",
    "camvid": "CamVid",
    "atlantis": "ATLANTIS",
}
PAGES = {
    "context_scenes/global": "experiments/context_scenes.md",
    "context_scenes/selective": "experiments/context_scenes.md",
    "stanford_background_folds": "results/stanford_background_folds.md",
    "camvid": "results/index.md#camvid",
    "camvid_best": "results/index.md#camvid-with-a-stronger-recipe",
    "atlantis": "results/index.md#atlantis",
    "atlantis_candidates": "results/index.md#candidates-on-atlantis",
    "rivals/atlantis": "rivals.md#atlantis",
    "rivals/stanford_background": "rivals.md#stanford-background",
    "rivals/camvid": "rivals.md#camvid",
    **{
        f"frozen/{cut}/{split}": "experiments/depth.md#frozen-features-cut-off-early"
        for cut in (
            *("stages_4", "stages_5", "stages_5_long", "stages_6", "whole_long"),
            *("stanford_5", "camvid_5"),
        )
        for split in ("test", "val")
    },
    "cut/atlantis": "experiments/depth.md#cut-off-early-all-of-it-learning",
    "cut/stanford_background": "experiments/depth.md#cut-off-early-all-of-it-learning",
    "frozen/slower/test": "results/frozen.md#at-a-fifth-of-the-rate",
    "frozen/slower/val": "results/frozen.md#on-val",
    "frozen/test": "results/frozen.md#on-test",
    "frozen/val": "results/frozen.md#on-val",
    "hyper_parameters": "results/index.md#hyper-parameters-of-the-predictor",
    "depth/vgg16_2": "experiments/depth.md#vgg16-two-blocks",
    "depth/vgg16_3": "experiments/depth.md#vgg16-three-blocks",
    "depth/vgg16_4": "experiments/depth.md#vgg16-four-blocks",
    "depth/mobilenet_v2_3": "experiments/depth.md#mobilenetv2",
    "depth/mobilenet_v2_5": "experiments/depth.md#mobilenetv2",
    "depth/mobilenet_v2_7": "experiments/depth.md#mobilenetv2",
}
# runs at full length, one seed: what `evaluate --json` printed
FULL_LENGTH = {
    "none": "none",
    "average": "average",
    "sca": "sca",
    "sca_tta": "sca, `--tta`",
    "curve": "sca, a tenth held out, best epoch",
}


@maker("contexts")
def contexts(page: Page) -> str:
    """Every context on every data set: mIoU, mean and standard error."""
    columns = SCENES | PHOTOGRAPHS
    known = {name: page.studies[name] for name in columns if name in page.studies}
    names = in_order(name for study in known.values() for name in study.names)
    table = []
    for context in sorted(names, key=lambda name: ":" in name):  # variants with options last
        cells = (_score(known.get(name), context) for name in columns)
        label = " ".join(f"`{part}`" for part in context.split(":"))  # a long one can be broken
        table.append([label, *cells])
    counts: dict[str, list[str]] = {}
    for name, study in known.items():
        counts.setdefault(_counts(study), []).append(columns[name])
    said = ", over ".join(f"{count} ({'; '.join(titles)})" for count, titles in counts.items())
    note = f"Test mIoU, mean ± standard error over {said}."
    return markdown_table(["context", *columns.values()], table, note)


def _score(study: Study | None, context: str) -> str:
    if study is None:
        return "not measured yet"
    found = (mean_and_error(one, "mIoU") for one in study.summaries if one.name == context)
    return next(found, "not run")


def _counts(study: Study) -> str:
    n = max(one.n for one in study.summaries)
    runs = len(study.rows)
    return f"{n} {study.counted}" + (f" with {runs} runs" if study.counted == "folds" else "")


@maker("differences")
def differences(page: Page) -> str:
    """What a context adds on photographs, with intervals, and what is told apart."""
    lines = []
    for name, title in PHOTOGRAPHS.items():
        study = page.studies.get(name)
        label = f"[{title}]({page.link(page.root / 'docs' / PAGES[name])})"
        if study is None:
            lines.append(f"- {label}: not measured yet.")
            continue
        first, *others = study.summaries
        parts = []
        for one in others:
            found = one.difference["mIoU"]
            if found is not None:
                parts.append(f"`{one.name}` {with_interval(found)} ({verdict(found)})")
        lines.append(
            f"- {label}: `{first.name}` {first.mean['mIoU']:.2f} mIoU; against it "
            f"{', '.join(parts)}. {apart(study)}"
        )
    return "\n".join(lines)


@maker("overview")
def overview(page: Page) -> str:
    """All studies: runs, machine, judged on, raw rows."""
    table = []
    for name, study in page.studies.items():
        splits = sorted({row["split"] for row in study.rows})
        judged = splits[0] if len(splits) == 1 else f"{splits[0]}, and so on"
        machines = " and ".join(sorted({row["device"] for row in study.rows}))
        rows = f"[results.csv]({page.link(study.folder / RESULTS)})"
        there = page.root / "docs" / PAGES[name] if name in PAGES else study.folder / TABLE
        title = f"[{name}]({page.link(there)})"
        table.append([title, len(study.names), len(study.rows), judged, machines, rows])
    head = ["study", "variants", "runs", "judged on", "machine", "raw rows"]
    return markdown_table(head, table) if page.studies else NOT_YET


@maker("full-length")
def full_length(page: Page) -> str:
    """The runs by the paper's recipe at full length: scores and IoU of each class."""
    folder = page.root / "docs" / "results" / "stanford_background"
    found = {label: _json(folder / f"{name}.json") for name, label in FULL_LENGTH.items()}
    found = {label: facts for label, facts in found.items() if facts is not None}
    return _per_class("context", found) if found else NOT_YET


@maker("built-in")
def built_in(page: Page) -> str:
    """The built-in model's scores, as `scaseg evaluate --json` printed them."""
    found = _json(page.root / "src" / "scaseg" / "builtin" / "outdoor" / "metrics.json")
    return _per_class("model", {"outdoor": found}) if found else NOT_YET


def _per_class(what: str, found: dict[str, dict[str, Any]]) -> str:
    classes = list(next(iter(found.values()))["per_class"])
    table = []
    for label, facts in found.items():
        values = [facts[name] for name in METRICS]
        values += [facts["per_class"][name]["IoU"] for name in classes]
        table.append([label, *("n/a" if value is None else f"{value:.1f}" for value in values)])
    return markdown_table([what, *SCORES, *classes], table)


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(path, "not JSON", "write it again", str(error)) from error
