"""The tables of README and docs are those of the CSVs beside them."""

import pytest

from scaseg.training.compare import markdown, summarise
from scaseg.training.compared_maps import maps_table
from scaseg.training.rows import read_rows
from tests.docs.pages import ROOT

RESULTS = ROOT / "docs" / "results" / "context_scenes"
FLAVOURS = ("global", "selective")


def summaries(flavour):
    rows = read_rows(RESULTS / flavour / "results.csv")
    names = list(dict.fromkeys(row["variant"] for row in rows))
    assert all(sum(row["variant"] == name for row in rows) == 3 for name in names)  # seeds
    return summarise(rows, names)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_page_on_scenes_has_the_table(flavour):
    page = (ROOT / "docs" / "experiments" / "context_scenes.md").read_text(encoding="utf-8")
    for line in markdown(summaries(flavour)).splitlines()[:-1]:
        assert line in page


def test_the_page_on_folds_has_the_table():
    page = (ROOT / "docs" / "results" / "stanford_background_folds.md").read_text(encoding="utf-8")
    rows = read_rows(ROOT / "docs" / "results" / "stanford_background_folds" / "results.csv")
    names = ["none", "average", "sca", "dot"]
    for line in [
        *markdown(summarise(rows, names)).splitlines(),
        *maps_table(rows, names).splitlines()[:5],
    ]:
        assert line in page
    assert f"**{len(rows)} of 40 runs are done**" in page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(rows)} of 40 runs so far" in readme
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 6 and cells[0] in names:  # a row of differences
            assert f"`{cells[0]}` {cells[4]}" in readme


def test_the_readme_has_the_scores():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    scores = {name: {} for name in FLAVOURS}
    for flavour in FLAVOURS:
        for row in summaries(flavour):
            scores[flavour][row.name] = f"{row.mean['mIoU']:.1f} ± {row.spread['mIoU']:.1f}"
    for name in ("none", "average", "sca", "dot"):
        line = f"| `{name}` | {scores['global'][name]} | {scores['selective'][name]} |"
        assert line in readme


def test_the_orders_are_what_the_page_says():
    """none < average < sca where one fact decides; a dynamic predictor best in the look-up."""
    orders = {"global": ["none < average", "average < sca"]}
    orders["selective"] = [f"{other} < dot" for other in ("none", "average", "sca")]
    for flavour, claims in orders.items():
        rows = read_rows(RESULTS / flavour / "results.csv")
        for claim in claims:
            worse, better = (
                [float(row["mIoU"]) for row in rows if row["variant"] == name]
                for name in claim.split(" < ")
            )
            assert max(worse) < min(better), claim  # whichever seeds are taken
