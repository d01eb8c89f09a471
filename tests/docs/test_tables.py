"""Tables, pictures and marked places of README and docs are those that the CSVs give."""

import importlib
import re
import shutil
import sys
from contextlib import redirect_stderr
from io import StringIO

import pytest
from PIL import Image

from scaseg.io.table import read_rows, write_rows
from scaseg.registry import CONTEXTS
from tests.docs.pages import PAGES, ROOT

RESULTS = ROOT / "docs" / "results"
PAPERS = ("none", "average", "sca", "dot")
PREDICTORS = [
    *("sca", "none", "average"),
    *(f"sca:layers={layers}" for layers in (0, 2, 4)),
    *("sca:hidden=128", "sca:hidden=256", "sca:activation=identity", "sca:activation=exp"),
    *("sca:score_std=0.1", "sca:score_std=0", "sca:share_features=true"),
]
MARKS = """# A page
Written.
<!-- begin contexts -->
<!-- end contexts -->
<!-- begin differences -->
<!-- end differences -->
<!-- begin overview -->
<!-- end overview -->
<!-- begin results camvid -->
<!-- end results -->
<!-- begin facts camvid 2026-11-15 12 -->
<!-- end facts -->
<!-- begin pairs camvid -->
<!-- end pairs -->
<!-- begin against camvid average -->
<!-- end against -->
<!-- begin against camvid average common -->
<!-- end against -->
<!-- begin maps camvid -->
<!-- end maps -->
<!-- begin pictures camvid -->
<!-- end pictures -->
<!-- begin said camvid -->
<!-- end said -->
<!-- begin axis hyper_parameters layers -->
<!-- end axis -->
<!-- begin rest hyper_parameters layers hidden -->
<!-- end rest -->
<!-- begin facts hyper_parameters 2026-11-15 -->
<!-- end facts -->
<!-- begin pictures hyper_parameters -->
<!-- end pictures -->
Written, too.
"""


@pytest.fixture(scope="module")
def build():
    sys.path.insert(0, str(RESULTS))
    yield importlib.import_module("build")
    sys.path.remove(str(RESULTS))


def a_row(variant, seed, fold, value):
    numbers = {"PPA": value + 14, "CAA": value + 10, "mIoU": value, "images": 57}
    maps = {"entropy": 0.9, "rank_correlation": 1.0, "difference": 0.01}
    if variant == "none":
        maps = dict.fromkeys(maps, "")
    costs = {"parameters": 20_000_000, "milliseconds": 7.5, "mebibytes": 1000, "seconds": ""}
    return {
        **dict(zip(("variant", "seed", "fold"), (variant, seed, fold), strict=True)),
        **numbers,
        "split": "the split test" if fold == "" else f"the images held out in fold {fold} of 5",
        **maps,
        **costs,
        "device": "NVIDIA H200",
        "side_by_side": 4,
    }


def write_study(root, name, rows):
    folder = root / "docs" / "results" / name
    folder.mkdir(parents=True)
    write_rows(folder / "results.csv", rows)
    return folder


def a_root(path):
    (path / "README.md").write_text("# Nothing marked\n")
    (path / "docs" / "results").mkdir(parents=True)
    (path / "docs" / "page.md").write_text(MARKS)
    return path


@pytest.fixture
def root(tmp_path):
    return a_root(tmp_path)


@pytest.fixture(scope="module")
def measured(build, tmp_path_factory):
    """CamVid by three seeds, sca ahead of all; settings in three folds, one of them failing."""
    root = a_root(tmp_path_factory.mktemp("measured"))
    gains = dict(zip(PAPERS, (0, 0.1, 3, -4), strict=True))
    noise = (0.0, 0.3, -0.2)
    write_study(
        root,
        "camvid",
        [
            a_row(name, seed, "", 60 + gain + noise[(seed + place) % 3])
            for seed in range(3)
            for place, (name, gain) in enumerate(gains.items())
        ],
    )
    write_study(
        root,
        "hyper_parameters",
        [
            a_row(name, 0, fold, 70 + fold + noise[(place + fold) % 3] - 2 * ("layers=0" in name))
            for fold in (1, 2, 3)
            for place, name in enumerate(PREDICTORS)
            if (name, fold) != ("sca:activation=identity", 2)
        ],
    )
    assert len(differing(build, root)) == 8  # a page, two tables each, three pictures
    build.main([], root)
    return root


def differing(build, root):
    """What --check names; nothing: all is well."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            build.main(["--check"], root)
    except SystemExit as stop:
        found = re.findall(r"^(.+): not what the CSVs give$", said.getvalue(), re.MULTILINE)
        return found if str(stop.code).startswith(f"error: {len(found)} files differ") else stop
    return []


def test_pages_tables_and_pictures_are_those_of_the_csvs(build):
    assert differing(build, ROOT) == [], "run `make results`"


def test_every_study_is_on_a_page():
    written = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "table.md")
    for path in RESULTS.rglob("results.csv"):
        name = path.parent.relative_to(RESULTS).as_posix()
        assert re.search(rf"<!-- begin (results|axis) {name}", written), name


def test_what_is_not_measured_says_so(build, root):
    build.main([], root)
    page = (root / "docs" / "page.md").read_text()
    assert page.count("*Not measured yet.*") == 13
    assert "CamVid](results/index.md#camvid): not measured yet" in page


def test_marked_places_are_filled_and_the_rest_is_left(build, measured):
    assert differing(build, measured) == []
    page = (measured / "docs" / "page.md").read_text()
    assert "*Not measured yet.*" not in page
    assert re.sub(r"(<!-- begin .*? -->\n).*?(<!-- end)", r"\1\2", page, flags=re.S) == MARKS
    assert "12 runs, 2026-11-15, on one NVIDIA H200 (4 trainings side by side)" in page
    assert "judged on the images held out in folds 1, 2 and 3 of 5 (" in page
    assert "Fewer runs than the 3 of the others: `sca:activation=identity` (2)." in page
    assert "| dot against sca | 3 | -7.0" in page
    assert "| sca against dot |" not in page  # in the order of the contexts
    assert (measured / "README.md").read_text() == "# Nothing marked\n"


def test_the_papers_tables_stand_beside_ours(measured):
    page = (measured / "docs" / "page.md").read_text()
    assert "| 0 | 85.9 / 54.2 / 38.9 | sca:layers=0 | 3 | " in page
    assert "| 1 | 86.0 / 54.1 / 39.5 | no run | 0 | " in page
    assert "| 3 | 86.3 / 54.2 / 39.2 | sca | 3 | " in page  # the default, without a difference
    open_questions = page[page.index("begin rest") : page.index("end rest")]
    shown = re.findall(r"^\| (\S+) \| \d", open_questions, re.MULTILINE)
    assert shown[0] == "sca"
    tuned = {name for name in PREDICTORS if "layers" in name or "hidden" in name}
    assert sorted(shown) == sorted({*PREDICTORS} - tuned)
    folder = measured / "docs" / "results" / "hyper_parameters"
    assert {path.name for path in folder.glob("*.png")} == {"axes.png", "compare.png"}


def test_words_follow_from_the_intervals(measured):
    page = (measured / "docs" / "page.md").read_text()
    words = dict(re.findall(r"`(\w+)` [-+\d.]+ \[.*?\] \((above|below|not told apart)\)", page))
    assert words == {"average": "not told apart", "sca": "above", "dot": "below"}
    assert "By mean mIoU: `dot` < `none` < `average` < `sca`." in page
    assert "higher in 3 of 3 pairs of runs; by this interval **above**" in page
    together = re.search(r"All pairs taken together \(6, .*?\): (.*)\.", page)[1]
    assert "`sca` above `none`" in together
    assert "`none` above `dot`" in together  # said the right way round
    assert "average` above `none`" not in together
    for mark in ("begin against camvid average -->", "begin against camvid average common -->"):
        beside = page[page.index(mark) :].partition("<!-- end")[0]
        assert "| none against average | 3 | -0.1" in beside
        assert "(3)." in beside  # corrected for these pairs alone
        assert "above: `sca`; below: `dot`" in beside.replace("not told apart: `none`; ", "")
    assert "| sca against average | 3 | +2.90 [+2" in beside  # a noise known from all runs


@pytest.mark.parametrize("what", ["csv", "page", "table", "picture", "row"])
def test_a_change_is_found(build, measured, tmp_path, what):
    root = tmp_path / "root"
    shutil.copytree(measured, root)
    folder = root / "docs" / "results" / "camvid"
    rows = read_rows(folder / "results.csv")
    if what == "csv":
        write_rows(folder / "results.csv", [rows[0] | {"mIoU": 61}, *rows[1:]])
        files = ["table.md", "table.csv", "compare.png"]
        wanted = {f"docs/results/camvid/{name}" for name in files} | {"docs/page.md"}
    elif what == "row":
        write_rows(folder / "results.csv", rows[:-1])
        wanted = {"docs/page.md", "docs/results/camvid/table.csv"}
    elif what == "page":
        page = root / "docs" / "page.md"
        page.write_text(page.read_text().replace("+3.0", "+4.0", 1))
        wanted = {"docs/page.md"}
    elif what == "table":
        table = folder / "table.csv"
        table.write_text(table.read_text().replace("seeds", "folds", 1))
        wanted = {"docs/results/camvid/table.csv"}
    else:
        (folder / "compare.png").unlink()
        wanted = {"docs/results/camvid/compare.png"}
    found = set(differing(build, root))
    assert found >= wanted
    if what in ("page", "table", "picture"):
        assert found == wanted


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- begin nothing -->\n<!-- end nothing -->", "docs/page.md: the mark 'nothing'; give"),
        ("<!-- begin paper -->\n", "docs/page.md: a mark without its other end"),
        ("<!-- begin results -->\n<!-- end results -->", "docs/page.md: the mark 'results' ("),
        ("<!-- begin paper -->\n<!-- end results -->", "docs/page.md: a mark without its other"),
    ],
)
def test_marks_that_nobody_can_fill(build, root, page, message):
    (root / "docs" / "page.md").write_text(page)
    with pytest.raises(SystemExit, match=re.escape(message)):
        build.main([], root)
    assert (root / "docs" / "page.md").read_text() == page


def test_a_doubled_row_is_refused(build, root):
    rows = [a_row("none", 0, "", 60), a_row("sca", 0, "", 61), a_row("none", 0, "", 62)]
    write_study(root, "camvid", rows)
    with pytest.raises(SystemExit, match="none, seed 0 has two rows; remove one"):
        build.main([], root)


def test_timings_as_bench_wrote_them(build, root):
    folder = root / "docs" / "timings"
    folder.mkdir()
    about = {"machine": "a machine", "precision": "bf16", "batch": 1, "channels": 512, "date": "x"}
    rows = [
        about | {"contender": name, "size": size, "forward": forward, "both": both}
        for name, size, forward, both in [
            ("sca", 3136, 0.0005, 0.00123456),
            ("psa", 3136, 0.001, 0.2),
            ("sca", 131072, 0.0011, 0.0045),
            ("psa", 131072, "nan", "nan"),
            ("crf", 3136, 1, 12),
        ]
    ]
    write_rows(folder / "h200.csv", rows)
    page = root / "docs" / "page.md"
    marks = "<!-- begin timings h200 -->\n<!-- end timings -->\n<!-- begin timings x -->\n"
    page.write_text(marks + "<!-- end timings -->\n")
    build.main([], root)
    text = page.read_text()
    assert "| `sca` | 0.5 / 1.23 | 1.1 / 4.5 |\n| `psa` | 1 / 200 | no memory |" in text
    assert "| `crf` | 1,000 / 12,000 | left out |" in text
    assert "a machine, precision bf16, batch 1, 512 channels, x ([CSV](timings/h200.csv))." in text
    assert text.count("*Not measured yet.*") == 1


@pytest.mark.parametrize("count", [7, 16])
def test_accuracy_over_cost_of_many_contexts(build, root, count):
    """From eight contexts on, with the page that names the study; some without a memory."""
    names = list(CONTEXTS)[:count]
    rows = [
        a_row(name, seed, "", 60 + place % 5 + 0.1 * seed)
        | {"milliseconds": 5 + place, "mebibytes": "" if name == "dot" else 1000 + 50 * place}
        for seed in range(3)
        for place, name in enumerate(names)
    ]
    folder = write_study(root, "rivals/atlantis", rows)
    page = root / "docs" / "page.md"
    page.write_text("<!-- begin pictures rivals/atlantis -->\n<!-- end pictures -->\n")
    build.main([], root)
    assert differing(build, root) == []
    is_drawn = count >= 8
    assert (folder / "cost.png").is_file() == is_drawn
    assert ("](results/rivals/atlantis/cost.png)" in page.read_text()) == is_drawn


def test_context_instead_of_depth(build, root):
    """Of each cut what its best context adds, beside what the next one has without."""
    names = ("none", "average", "sca")
    for place, study in enumerate(("depth/vgg16_2", "depth/vgg16_3", "rivals/stanford_background")):
        rows = [
            a_row(name, seed, "", 50 + 10 * place + 2 * gain + 0.1 * seed * gain)
            for seed in range(3)
            for gain, name in enumerate(names)
        ]
        write_study(root, study, rows)
    page = root / "docs" / "page.md"
    marks = ("depth", "missing depth/vgg16_2 4 none psp", "missing depth/vgg16_3 3 none sca")
    page.write_text("".join(f"<!-- begin {m} -->\n<!-- end {m.split()[0]} -->\n" for m in marks))
    build.main([], root)
    text = page.read_text()
    assert "| vgg16, 2 of 5 stages | 20 |" in text
    assert "| vgg16, 5 of 5 stages | 188 |" in text  # 3 x 3 convolutions, pools and dilation
    gain = "`sca` adds most, +4.20 [+3.70, +4.70] points (above)"
    assert f"2 of 5 stages: {gain}; 3 stages without context add +10.00." in text
    assert "**Not run yet: `psp`.** Fewer than 4 runs: `none` (3)." in text
    assert "All 2 contexts have 3 runs or more." in text
    assert differing(build, root) == []
    write_study(root, "depth/vgg16_4", [a_row("none", 0, "", 65)])
    assert "docs/results/depth/depth.png" in differing(build, root)


@pytest.mark.parametrize("count", [1, 2, 5, 7, 13])
def test_any_number_of_variants_is_drawn(build, root, count):
    """One fold for some, a row that has collapsed: pictures stay of a size for a page."""
    rows = [
        a_row(name, 0, fold, 70 + fold - 40 * ("identity" in name))
        for fold in (1, 2)
        for place, name in enumerate(PREDICTORS[:count])
        if fold == 1 or place != 4
    ]
    folder = write_study(root, "hyper_parameters", rows)
    build.main([], root)
    for path in folder.glob("*.png"):
        with Image.open(path) as picture:
            assert picture.width <= 2200, path
            assert picture.height <= 1000, path


def test_variants_have_one_order(build):
    from making.studies import OPTIONS, in_order

    names = ["dot", "sca:hidden=256", "sca:hidden=128", "none", "sca:layers=0", "sca", "average"]
    assert in_order(names) == [
        *("none", "average", "sca", "sca:layers=0", "sca:hidden=128", "sca:hidden=256", "dot")
    ]
    assert (OPTIONS["layers"], OPTIONS["hidden"]) == (3, 512)  # the paper's, and the code's


def test_the_orders_are_what_the_page_on_scenes_says():
    """none < average < sca where one fact decides; a dynamic predictor best in the look-up."""
    orders = {"global": ["none < average", "average < sca"]}
    orders["selective"] = [f"{other} < dot" for other in ("none", "average", "sca")]
    for flavour, claims in orders.items():
        rows = read_rows(RESULTS / "context_scenes" / flavour / "results.csv")
        for claim in claims:
            worse, better = (
                [float(row["mIoU"]) for row in rows if row["variant"] == name]
                for name in claim.split(" < ")
            )
            assert max(worse) < min(better), claim  # whichever seeds are taken
