"""The notebook runs from its first cell to its last, in a folder of its own.

Its code alone is executed: nbclient would bring a kernel, a message queue and 20 packages to say
the same.
"""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# as a notebook does: statements, then the last expression shown
RUN = """
import ast, sys
names = {}
for number, cell in enumerate(CELLS, 1):
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        print(number, repr(shown))
"""


def code_cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path, tmp_path):
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    done = subprocess.run(
        [sys.executable, "-c", f"CELLS = {cells!r}\n{RUN}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Segmentation(" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_kept_without_results(path):
    """So that a change shows as the lines that changed, and nothing of a machine is in it."""
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        ast.parse("".join(cell["source"]))
