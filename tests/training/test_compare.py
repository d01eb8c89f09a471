"""scaseg compare: tables that are right, comparisons that go on, settings that do not mix."""

import csv

import pytest

from scaseg.cli import main
from scaseg.training.compare import markdown, read_variant, summarise
from scaseg.training.rows import read_rows, write_rows
from tests.scenes import write_scenes

LIGHT = ("--backbone", "mobilenet_v2", "--head", "compact", "--device", "cpu", "--workers", "0")


def row(variant, seed, value):
    metrics = {"PPA": value + 2, "CAA": value + 1, "mIoU": value}
    more = {"parameters": 10, "milliseconds": 4.0, "mebibytes": ""}
    return {"variant": variant, "seed": seed, **metrics, **more}


def test_the_summary_by_hand():
    """none 10 12 14, sca 13 13 16: differences 3 1 2, their deviation 1, its error 1/sqrt(3)."""
    rows = [row("none", seed, value) for seed, value in enumerate((10, 12, 14))]
    rows += [row("sca", seed, value) for seed, value in enumerate((13, 13, 16))]
    none, sca = summarise(rows, ["none", "sca"])
    assert none.mean == {"PPA": 14, "CAA": 13, "mIoU": 12}
    assert none.spread["mIoU"] == 2
    assert sca.difference["mIoU"] == 2
    assert sca.difference_error["mIoU"] == pytest.approx(1 / 3**0.5)
    table = markdown([none, sca])
    assert "| none | 3 | 14.0 ± 2.0 | 13.0 ± 2.0 | 12.0 ± 2.0 |  |" in table
    assert "| sca | 3 | 16.0 ± 1.7 | 15.0 ± 1.7 | 14.0 ± 1.7 | +2.00 ± 0.58 |" in table


def test_seeds_are_paired_and_not_mixed():
    rows = [row("none", 0, 10), row("none", 1, 20), row("sca", 1, 21)]  # sca's seed 0 is missing
    assert summarise(rows, ["none", "sca"])[1].difference["mIoU"] == 1


def test_variants_have_options_of_their_own():
    assert read_variant("sca:pair_channels=4:activation=exp")[1:] == (
        "sca",
        {"pair_channels": 4, "activation": "exp"},
    )
    for text in ("gat", "sca:pair_channels"):
        with pytest.raises(ValueError, match="--contexts: "):
            read_variant(text)


def test_a_comparison_goes_on_where_it_was(tmp_path, capsys):
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(40, 48)), tmp_path / "out"
    common = ["compare", "--data", str(scenes), "--out", str(out), *LIGHT, "--epochs", "1"]
    main([*common, "--contexts", "none,sca", "--seeds", "1", "--quiet"])
    first = capsys.readouterr()
    assert first.err == ""
    assert first.out == (out / "table.md").read_text()
    _, maps = first.out.split("| context | entropy of a map |")
    assert 0.5 < float(maps.split("| sca | ")[1].split(" |")[0]) <= 1
    assert "| none |" not in maps  # it has no maps
    before = (out / "results.csv").read_text()
    newer = ("split", "entropy", "rank_correlation", "difference")  # than an earlier version
    known = read_rows(out / "results.csv")
    older = [{name: row[name] for name in row if name not in newer} for row in known]
    write_rows(out / "results.csv", older)
    main([*common, "--contexts", "none,sca", "--seeds", "1", "--quiet"])
    assert capsys.readouterr().out == first.out
    assert read_rows(out / "results.csv") == known
    write_rows(out / "results.csv", known)
    assert (out / "results.csv").read_text() == before
    main([*common, "--contexts", "none,sca", "--seeds", "2"])
    assert "run 3 of 4: none, seed 1" in capsys.readouterr().err
    after = (out / "results.csv").read_text()
    assert after.startswith(before)
    with (out / "results.csv").open(newline="") as file:
        found = [(line["variant"], line["seed"]) for line in csv.DictReader(file)]
    assert found == [("none", "0"), ("sca", "0"), ("none", "1"), ("sca", "1")]
    assert {path.name for path in out.iterdir()} == {
        *("recipe.yaml", "results.csv", "table.md", "table.csv", "compare.png", "runs")
    }
    main([*common, "--contexts", "none,sca", "--seeds", "2", "--split", "train", "--quiet"])
    judged = (out / "results.csv").read_text()  # no training again, and no number of before
    assert judged.count("the split train") == 4
    with pytest.raises(SystemExit) as stop:
        main([*common, "--epochs", "2", "--contexts", "none"])
    assert stop.value.code == 2
    assert "holds a comparison with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--contexts", "none,gat"), "--contexts: 'gat'; give some of none, average, sca, dot"),
        (("--contexts", "none,none"), "give each once"),
        (("--contexts", "none,sca:wide=1"), "model.context_options.wide: unknown key"),
        (("--context", "sca"), "--context: several are compared; use --contexts"),
        (("--devices", "2"), "--devices: a comparison runs in one process"),
    ],
)
def test_what_compare_refuses(tmp_path, capsys, arguments, message):
    scenes, out = write_scenes(tmp_path / "scenes", 8, size=(40, 48)), tmp_path / "out"
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--data", str(scenes), "--out", str(out), *LIGHT, *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()
