"""What the trainings wrote from which the recipe own_folder was chosen."""

from __future__ import annotations

import statistics

import numpy as np

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import read_rows

FILE = "docs/results/own_folder/runs.csv"
SETS = {"atlantis": "ATLANTIS", "camvid": "CamVid", "stanford_background": "Stanford Background"}
DESIGN = "pb"  # how the names of the design's runs begin
Row = dict[str, str]


@maker("own-folder-factors")
def factors(page: Page) -> str:
    """Each setting of the design: what its other level adds to mIoU, averaged over the rest."""
    rows = [row for row in read_rows(page.root / FILE) if row["name"].startswith(DESIGN)]
    if not rows:
        return NOT_YET
    names = [name for name in rows[0] if len({row[name] for row in rows}) == 2 and name != "seed"]
    levels = {name: sorted({row[name] for row in rows}, key=_level) for name in names}
    signs = [[2 * (row[name] == levels[name][1]) - 1 for name in names] for row in rows]
    design = np.column_stack([np.ones(len(rows)), np.array(signs, float)])
    scores = np.array([float(row["mIoU"]) for row in rows])
    found, _, rank, _ = np.linalg.lstsq(design, scores, rcond=None)
    left = scores - design @ found
    noise = float(np.sqrt(left @ left / max(1, len(rows) - rank)))
    table = [
        [f"`{name}`", *levels[name], f"{2 * found[index]:+.2f}"]
        for index, name in sorted(enumerate(names, 1), key=lambda one: -abs(found[one[0]]))
    ]
    freedom, link = len(rows) - rank, f"[runs.csv]({page.link(page.root / FILE)})"
    error = f"{2 * noise / len(rows) ** 0.5:.2f}" if freedom > 2 else "not known"
    note = (
        f"{len(rows)} runs on {SETS[rows[0]['set']]} ({rows[0]['epochs']} epochs), mIoU on val "
        f"{scores.min():.1f} to {scores.max():.1f}; standard error of a difference {error} (what "
        f"is left over has {freedom} degrees of freedom). Raw rows {link}."
    )
    return markdown_table(["setting", "from", "to", "mIoU"], table, note)


def _level(value: str) -> tuple[bool, float, str]:
    """Numbers by size, `none` and `ce` first, and what else there is by its name."""
    try:
        return False, float(value), value
    except ValueError:
        first = value in ("none", "ce", "False", "frozen", "0.75 to 1.5")
        return True, float(not first), value


@maker("own-folder-peers")
def peers(page: Page, *names: str) -> str:
    """A line a network: mIoU on val of each set, of each seed; parameters and time."""
    rows = [row for row in read_rows(page.root / FILE) if not row["name"].startswith(DESIGN)]
    table = []
    for name in names:
        own = [row for row in rows if row["name"] == name]
        if not own:
            continue
        cells = [_scores(own, one) for one in SETS]
        table.append([name.replace("_", " "), *cells, f"{int(own[0]['parameters']) / 1e6:.2f} M"])
    if not table:
        return NOT_YET
    link = f"[runs.csv]({page.link(page.root / FILE)})"
    note = f"mIoU on val, each seed; the mean in front where there are several. Raw rows {link}."
    return markdown_table(["network and recipe", *SETS.values(), "parameters"], table, note)


def _scores(rows: list[Row], name: str) -> str:
    found = [float(row["mIoU"]) for row in rows if row["set"] == name]
    if len(found) < 2:
        return f"{found[0]:.1f}" if found else "not run"
    return f"**{statistics.fmean(found):.1f}** ({', '.join(f'{one:.1f}' for one in found)})"
