"""The paper's figures (Wang, Gu et al. 2017, tables 1 to 3), and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence

from making.marks import NOT_YET, Page, maker, of_study
from making.pairs import holm
from making.studies import Study, read_axis
from scaseg.comparison.statistics import METRICS, Summary
from scaseg.comparison.tables import (
    SCORES,
    markdown_table,
    mean_and_error,
    p_value,
    with_interval,
)

Scores = tuple[float, float, float]  # PPA, CAA, mIoU

# on SIFT Flow: tables 1 (K_f = 128) and 2 (K_l = 3)
TUNED: dict[str, dict[int, Scores]] = {
    "layers": {
        0: (85.9, 54.2, 38.9),
        1: (86.0, 54.1, 39.5),
        2: (86.6, 52.7, 38.7),
        3: (86.3, 54.2, 39.2),
        4: (85.5, 53.6, 38.0),
    },
    "hidden": {128: (86.1, 55.0, 40.0), 256: (86.9, 54.5, 40.2), 512: (87.0, 54.3, 40.7)},
}
LETTERS = {"layers": "K_l", "hidden": "K_f"}
# table 3; SIFT Flow has no ablation there
ABLATION: dict[str, tuple[str, dict[str, Scores | None]]] = {
    "PASCAL Context": (
        "pascal_context",
        {"none": (71.0, 51.0, 39.3), "average": (72.1, 52.1, 41.1), "sca": (72.8, 54.4, 42.0)},
    ),
    "COCO Stuff 10k": (
        "coco_stuff_10k",
        {"none": (59.9, 41.2, 27.9), "average": (60.8, 40.5, 27.6), "sca": (61.6, 42.5, 29.1)},
    ),
    "SIFT Flow": ("sift_flow", {"none": None, "average": None, "sca": (87.0, 54.3, 40.7)}),
}


@maker("paper")
def paper(page: Page) -> str:
    """The paper's own three data sets; a row is not run here until there is a study of its name."""
    table = []
    for data, (name, scores) in ABLATION.items():
        study = page.studies.get(name)
        ours = {one.name: mean_and_error(one, "mIoU") for one in study.summaries} if study else {}
        for context, known in scores.items():
            recipe = page.root / "src/scaseg/recipes" / f"{name}.yaml"
            here, link = ours.get(context, "not run here"), f"[{recipe.name}]({page.link(recipe)})"
            table.append([data, context, _cell(known), here, link])
    head = ["data", "context", "paper: PPA / CAA / mIoU", "here: mIoU", "recipe"]
    return markdown_table(head, table)


@maker("axis")
@of_study
def axis(page: Page, study: Study, along: str) -> str:
    """One option of `sca` from value to value, the paper's figures beside ours."""
    option, _ = read_axis(along)
    found, known = study.along(along), TUNED.get(option, {})
    family = _Family(study, list(found.values()))
    theirs = ["paper, SIFT Flow: PPA / CAA / mIoU"] if known else []
    table = []
    for value in sorted({*known, *found}):
        figures = [_cell(known.get(value))] if known else []
        one = found.get(value)
        ours = family.cells(one) if one else ["no run", 0, "", "", "", "", ""]
        table.append([value, *figures, *ours])
    head = [LETTERS.get(option, option), *theirs, "here: variant", *family.head]
    return markdown_table(head, table, family.note)


@maker("rest")
@of_study
def rest(page: Page, study: Study, *options: str) -> str:
    """Every variant that no table of these options has: nothing measured is left out."""
    shown = {one.name for option in options for one in study.along(option).values()}
    first, *others = study.summaries
    chosen = [first, *(one for one in others if one.name not in shown)]
    if len(chosen) < 2:
        return NOT_YET
    family = _Family(study, chosen)
    return markdown_table(["variant", *family.head], map(family.cells, chosen), family.note)


class _Family:
    """Variants of one table: their differences to the study's first, corrected together."""

    def __init__(self, study: Study, members: Sequence[Summary]) -> None:
        self.first = study.names[0]
        self.study = study
        self.found = {
            one.name: difference
            for one in members
            if one.name != self.first and (difference := study.difference(one)) is not None
        }
        chances = [found.p if found else None for found in self.found.values()]
        self.chances = dict(zip(self.found, holm(chances), strict=True))

    @property
    def head(self) -> list[str]:
        """The columns after that of names."""
        return ["runs", *SCORES, f"mIoU against `{self.first}`", "p, Holm"]

    def cells(self, one: Summary) -> list[object]:
        """All of a variant's row, from its name on."""
        found = self.found.get(one.name)
        tested = [with_interval(found), p_value(self.chances[one.name])] if found else ["", ""]
        return [one.name, one.runs, *(self.score(one, metric) for metric in METRICS), *tested]

    def score(self, one: Summary, metric: str) -> str:
        found = self.study.adjusted and self.study.adjusted[metric].get(one.name)
        return f"{found.mean:.2f}" if found else mean_and_error(one, metric)

    @property
    def note(self) -> str:
        how = f"Mean ± standard error over {self.study.counted}; differences paired"
        if self.study.adjusted is not None:
            how = (
                "Means as if every variant had run in every fold (value = fold + variant, fitted "
                "to all runs of this study); differences with the noise of all variants together"
            )
        return (
            f"{how}, with 95 % intervals; p corrected, after Holm, for the {len(self.found)} "
            "differences of this table."
        )


def _cell(scores: Scores | None) -> str:
    return "not given" if scores is None else " / ".join(f"{value:.1f}" for value in scores)
