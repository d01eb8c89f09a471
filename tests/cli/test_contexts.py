"""scaseg contexts: every context of the registry, by its own attributes."""

import csv
import json
from io import StringIO

import pytest

from scaseg.cli import main
from scaseg.nn.contexts.baselines import AverageContext
from scaseg.registry import CONTEXTS
from tests.nn.blocks import WITHOUT_MAPS

SMALL = ["--channels", "16", "--sides", "4"]


def listed(capsys, *options):
    main(["contexts", *(options or SMALL), "--json"])
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)}


def test_the_cost_grows_as_is_said(capsys):
    found = listed(capsys, "--channels", "64", "--sides", "24,48")
    assert list(found) == list(CONTEXTS)
    orders = {"dot": "n^2", "psa": "n^2", "crf": "n^2", "ccnet": "n sqrt(n)"}
    for name, one in found.items():
        few, many = one["multiply_adds"].values()
        assert list(one["multiply_adds"]) == list(one["memory"]) == ["576", "2304"]
        assert one["order"] == orders.get(name, "n")
        # what is done with R means costs the same at any n
        assert (3.5 < many / few < 4.1) == (one["order"] == "n"), name
        held, more = one["memory"].values()
        # psa alone holds n x n coefficients: attention is fused
        assert (more / held > 5) == (name == "psa"), name
    assert found["none"]["parameters"] == 64 * 64
    assert found["none"]["multiply_adds"]["576"] == 576 * 64 * 64
    assert {name for name, one in found.items() if not one["input_dependent"]} == {
        "none",
        "average",
        "parsenet",
        "psp",
        "dilated",
        "aspp",
        "dagrnn",
    }
    assert {name for name, one in found.items() if not one["has_maps"]} == set(WITHOUT_MAPS)
    assert [name for name, one in found.items() if one["not_exported"]] == ["dagrnn"]
    assert not found["sca"]["neuron_selective"]
    assert found["dot"]["neuron_selective"]


def test_every_context_says_where_it_comes_from(capsys):
    for name, one in listed(capsys).items():
        assert len(one["reference"]) > 1, name
        assert one["summary"].endswith("."), name


@pytest.mark.parametrize("columns", [60, 80])
def test_the_list_fits_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    main(["contexts", *SMALL])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(CONTEXTS)
    assert max(map(len, lines)) <= columns


def test_the_costs_as_csv(capsys):
    main(["contexts", "--channels", "16", "--sides", "4,5", "--csv"])
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [row["context"] for row in rows] == [name for name in CONTEXTS for _ in range(2)]
    assert rows[1] == {
        "context": "none",
        "parameters": "256",
        "n": "25",
        "multiply_adds": str(25 * 256),
        "memory": rows[1]["memory"],
    }
    # the result, its gradient and that of the map at least, and that of the parameters
    assert int(rows[1]["memory"]) >= 4 * (3 * 25 * 16 + 256) - 4 * 25 * 16


class Rival(AverageContext):
    """A context from elsewhere."""

    reference = "someone 2030"


def test_a_new_context_joins_by_a_line(monkeypatch, capsys):
    monkeypatch.setitem(CONTEXTS._homes, "rival", f"{__name__}:Rival")
    assert listed(capsys)["rival"]["reference"] == "someone 2030"
    main(["contexts", *SMALL])
    assert "    from: someone 2030\n" in capsys.readouterr().out


@pytest.mark.parametrize("sides", ["0", "8,x", "8,", "9999"])
def test_sides_that_are_none(sides, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["contexts", "--sides", sides])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "--sides: " in error
    assert "give whole numbers from 1 to 128 separated by commas" in error


def test_channels_that_heads_do_not_divide(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["contexts", "--channels", "100", "--sides", "8"])
    assert stop.value.code == 2
    message = (
        "error: --channels: heads: 8 for 100 channels; give a divisor of the number of channels"
    )
    assert capsys.readouterr().err == f"{message}\n"
