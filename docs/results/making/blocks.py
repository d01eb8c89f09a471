"""The texts of marks that are about one study."""

from __future__ import annotations

import re
import statistics

from making.adjusted import adjusted
from making.marks import NOT_YET, Page, maker, of_study
from making.pairs import VariantPair, holm, pairs_table, pairs_with, verdict
from making.pictures import ALT, pictures_of
from making.studies import Study
from scaseg.comparison.results import RESULTS
from scaseg.comparison.statistics import Difference, Summary, values_of
from scaseg.comparison.tables import (
    CSV_TABLE,
    maps_markdown,
    markdown,
    paired_by,
    with_interval,
)
from scaseg.io.model_folder import RECIPE

LEVEL = 0.05


@maker("results")
@of_study
def results(page: Page, study: Study) -> str:
    """Scores and costs, and differences to the first, as `scaseg compare` prints them."""
    return markdown(study.summaries)


@maker("pairs")
@of_study
def pairs(page: Page, study: Study) -> str:
    """Every pair, corrected for their number."""
    return pairs_table(study.pairs, study.counted)


@maker("against")
@of_study
def against(page: Page, study: Study, first: str, noise: str = "own") -> str:
    """Every other variant against one, corrected for their number; then what is told apart.

    noise: "own", of each pair alone, or "common", one for all runs, as `adjusted` fits it.
    """
    pairs = pairs_with(study.rows, study.names, first)
    if noise == "common":
        fitted = adjusted(study.rows, [first, *(pair.second for pair in pairs)])
        differences = [fitted[pair.second].difference for pair in pairs]
        known = [one for one in differences if one is not None]
        corrected = holm([one.p for one in known])
        pairs = [
            VariantPair(first, pair.second, one, p)
            for pair, one, p in zip(pairs, known, corrected, strict=True)
        ]
    if not pairs:
        return NOT_YET
    text = pairs_table(pairs, study.counted)
    if noise == "common":
        text = text.replace(
            paired_by(study.counted),
            f"value = context + {study.counted[:-1]} fitted to all runs, which has one noise for "
            "all contexts, with 95 % confidence intervals; a context with one run has none",
        )
    words: dict[str, list[str]] = {}
    for pair in pairs:
        words.setdefault(verdict(pair.difference), []).append(f"`{pair.second}`")
    said = "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items())
    kept = [pair for pair in pairs if pair.holm is not None and pair.holm < LEVEL]
    which = ", ".join(map(_order, kept)) if kept else "none is told apart"
    return f"{text}\nBy their intervals, {said}. With Holm's correction at 5 %: {which}."


@maker("maps")
@of_study
def maps(page: Page, study: Study) -> str:
    """What was measured of the dependency maps."""
    return maps_markdown(study.rows, study.names) or NOT_YET


@maker("pictures")
@of_study
def pictures(page: Page, study: Study) -> str:
    """All pictures of a study."""
    return "\n\n".join(
        f"![{ALT[name]}]({page.link(study.folder / name)})" for name in pictures_of(study)
    )


@maker("facts")
@of_study
def facts(page: Page, study: Study, date: str, planned: str = "0") -> str:
    """How many runs (of how many planned), when, on what, judged on what, where the rows are."""
    runs = len(study.rows)
    done = f"{runs} of {planned} runs so far" if runs < int(planned) else f"{runs} runs"
    lines = [f"{done}, {date}, on {_machines(study)}; {_judged(study)}."]
    counts = {one.runs for one in study.summaries}
    fewer = [f"`{one.name}` ({one.runs})" for one in study.summaries if one.runs < max(counts)]
    if len(fewer) > 3:
        lines.append(f"{min(counts)} to {max(counts)} runs a variant.")
    elif fewer:
        lines.append(f"Fewer runs than the {max(counts)} of the others: {', '.join(fewer)}.")
    files = {"Raw rows": RESULTS, "resolved recipe": RECIPE, "summary": CSV_TABLE}
    if not (study.folder / RECIPE).is_file():
        del files["resolved recipe"]
    there = (f"{what} [{name}]({page.link(study.folder / name)})" for what, name in files.items())
    return " ".join([*lines, f"{', '.join(there)}."])


@maker("missing")
@of_study
def missing(page: Page, study: Study, seeds: str, *contexts: str) -> str:
    """Which of the contexts that a page compares have no runs yet, or not all."""
    runs = {one.name: one.runs for one in study.summaries}
    none = [f"`{name}`" for name in contexts if name not in runs]
    some = [f"`{name}` ({runs[name]})" for name in contexts if 0 < runs.get(name, 0) < int(seeds)]
    lines = [f"**Not run yet: {', '.join(none)}.**"] if none else []
    lines += [f"Fewer than {seeds} runs: {', '.join(some)}."] if some else []
    return " ".join(lines) or f"All {len(contexts)} contexts have {seeds} runs or more."


def _machines(study: Study) -> str:
    names = dict.fromkeys(row["device"] for row in study.rows)
    beside = {row.get("side_by_side") for row in study.rows} - {None, "", "1"}
    said = " and ".join("a CPU" if name == "cpu" else f"one {name}" for name in names)
    return said + (f" ({' or '.join(sorted(beside))} trainings side by side)" if beside else "")


def _judged(study: Study) -> str:
    of_fold = re.compile(r"fold (\d+) of (\d+)")
    found = [of_fold.search(row["split"]) for row in study.rows]
    folds = sorted({int(match[1]) for match in found if match})
    total = max((int(match[2]) for match in found if match), default=0)
    some = (
        f"folds {', '.join(map(str, folds[:-1]))} and {folds[-1]} of {total}" if folds[1:] else ""
    )
    which = f"each of {total} folds" if len(folds) == total else some
    words = dict.fromkeys(
        of_fold.sub(which, row["split"]) if which else row["split"] for row in study.rows
    )
    counts = sorted({int(row["images"]) for row in study.rows})
    images = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"judged on {' and '.join(words)} ({images} images each time)"


@maker("said")
@of_study
def said(page: Page, study: Study) -> str:
    """What the numbers say, in words that follow from the intervals, whichever way they lie."""
    ranked = sorted(study.summaries, key=lambda one: one.mean["mIoU"])
    lines = [f"- By mean mIoU: {' < '.join(f'`{one.name}`' for one in ranked)}."]
    if spread := _spread_of_folds(study):
        lines.append(spread)
    for one in study.summaries[1:]:
        found = one.difference["mIoU"]
        if found is not None:
            lines.append(f"- {_against(study, one, found)}")
    return "\n".join([*lines, f"- {apart(study)}"])


def _spread_of_folds(study: Study) -> str | None:
    """How far folds are apart, beside how far contexts are within one."""
    folds: dict[int, dict[str, list[float]]] = {}
    for name in study.names:
        for (fold, _), value in values_of(study.rows, name, "mIoU").items():
            if fold is not None:
                folds.setdefault(fold, {}).setdefault(name, []).append(value)
    first = [
        statistics.fmean(own[study.names[0]]) for own in folds.values() if study.names[0] in own
    ]
    within = [
        max(means) - min(means)
        for own in folds.values()
        if len(means := [statistics.fmean(values) for values in own.values()]) > 1
    ]
    if len(first) < 2 or not within:
        return None
    return (
        f"- The folds of `{study.names[0]}` differ by up to {max(first) - min(first):.1f} points; "
        f"the contexts of one fold by {statistics.fmean(within):.1f} on average: hence pairs."
    )


def _against(study: Study, one: Summary, found: Difference) -> str:
    first = study.names[0]
    own, base = (values_of(study.rows, name, "mIoU") for name in (one.name, first))
    gains = [own[place] - base[place] for place in own if place in base]
    above = sum(gain > 0 for gain in gains)
    return (
        f"`{one.name}` against `{first}`: {with_interval(found)} points of mIoU, higher in "
        f"{above} of {len(gains)} pairs of runs; by this interval **{verdict(found)}**."
    )


def apart(study: Study) -> str:
    """The pairs that stay different when their number is accounted for."""
    tested = [pair for pair in study.pairs if pair.holm is not None]
    if not tested:
        return "No pair has enough runs for a test."
    found = [pair for pair in tested if pair.holm is not None and pair.holm < LEVEL]
    which = ", ".join(map(_order, found)) if found else "none is told apart"
    return f"All pairs taken together ({len(tested)}, with Holm's correction at 5 %): {which}."


def _order(pair: VariantPair) -> str:
    worse, better = pair.first, pair.second
    if pair.difference.mean < 0:
        worse, better = better, worse
    return f"`{better}` above `{worse}` (by {abs(pair.difference.mean):.2f})"
