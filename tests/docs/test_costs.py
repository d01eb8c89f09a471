"""docs/contexts.csv is what `scaseg contexts --csv` counts."""

import pytest

from scaseg.io.table import read_rows
from scaseg.nn.build import build_context
from scaseg.nn.cost import count_cost
from scaseg.registry import CONTEXTS
from tests.docs.pages import ROOT

ROWS = read_rows(ROOT / "docs" / "contexts.csv")
SIZES = [196, 784, 3136]
POWER = {"n": 1, "n sqrt(n)": 1.5, "n^2": 2}


def test_every_context_at_three_sizes():
    found = [(row["context"], int(row["n"])) for row in ROWS]
    assert found == [(name, size) for name in CONTEXTS for size in SIZES]


@pytest.mark.parametrize("name", CONTEXTS)
def test_counted_again(name):
    few, more, many = (row for row in ROWS if row["context"] == name)
    block = build_context(name, 512, classes=59)
    assert int(few["parameters"]) == sum(one.numel() for one in block.parameters())
    count, memory = count_cost(name, 512, 14, 14, classes=59)
    assert int(few["multiply_adds"]) == count
    assert int(few["memory"]) == pytest.approx(memory, rel=0.1)  # other versions of torch
    # from 784 to 3,136 not faster than its order says
    growth = int(many["multiply_adds"]) / int(more["multiply_adds"])
    assert growth <= 4.01 ** POWER[block.order]
