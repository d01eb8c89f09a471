import pytest

from scaseg.data.validation.report import Report, render
from scaseg.data.validation.samples import Finding


def report_with(findings=(), classes=("sky", "a very long name of a class that goes on", "道路")):
    return Report(
        root="somewhere",
        splits={"train": 3},
        sizes={},
        classes=classes,
        counted="train",
        pixels=(600, 399, 1),
        unlabelled=10,
        eta=0.3,
        weights=(1.0, 1.0, 8.0),
        weighting="the paper's, clamped to 1 to 16, as in the recipe own_folder",
        findings=tuple(findings),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 300])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_the_chart_fits_the_terminal(width, encoding):
    from rich.cells import cell_len

    text = render(report_with(), width=width, encoding=encoding)
    assert max(map(cell_len, text.splitlines())) == min(width, 100)
    text.encode(encoding)
    signs = ("█", "eta = 0.3") if encoding == "utf-8" else ("###", "eta = 0.3")
    for sign in signs:
        assert sign in text


def test_class_names_are_no_markup():
    text = render(report_with(classes=("[red]sky[/red]", ":smile:", "[/]")))
    assert all(name in text for name in ("[red]sky[/red]", ":smile:", "[/]"))
    assert "\x1b" not in text


def test_problems_of_one_kind_are_shown_together():
    same = [Finding(f"{i}.png", "a RGB label map", "give one channel") for i in range(300)]
    other = Finding("z.png", "cannot be read", "repair it", "torn")
    text = render(report_with([*same, other]), width=60)
    assert "error, 300 times: a RGB label map; give one channel" in text
    assert "    4.png\n    and 295 more\n" in text
    assert "5.png" not in text
    assert "error: z.png: cannot be read (torn); repair it" in text
    assert text.endswith("301 errors, 0 warnings.")
    [rgb, torn] = report_with([*same, other]).to_dict()["errors"]
    assert len(rgb["places"]) == 300
    assert torn["places"] == [{"place": "z.png", "detail": "torn"}]
