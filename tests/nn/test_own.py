"""Contexts from outside of the package: the example of the docs, on the command line too."""

import json
import sys
from pathlib import Path

import pytest
import torch

import scaseg
from scaseg.cli import main
from scaseg.errors import UserError
from scaseg.registry import CONTEXTS
from tests.scenes import SMALL, write_scenes

PAGE = Path(__file__).parents[2] / "docs" / "own_context.md"
ROWS = "my_contexts:RowContext"
OTHERS = """
imported = True
class Wrong:
    pass
class Transposed(RowContext):
    def target_context(self, x, source, source_mask):
        return super().target_context(x, source, source_mask).mT
class Misnamed(RowContext):
    score_parts = ("scores",)
class Leaking(RowContext):
    def target_context(self, x, source, source_mask):
        return super().target_context(x, source, None)
class Smaller(RowContext):
    def forward(self, x, **options):
        return super().forward(x, **options)[..., ::2, ::2]
class Infinite(RowContext):
    def target_context(self, x, source, source_mask):
        return super().target_context(x, source, source_mask) * float("inf")
class Raising(RowContext):
    def target_context(self, x, source, source_mask):
        raise RuntimeError("sizes differ")
class Fixed(RowContext):
    def target_context(self, x, source, source_mask):
        sides = torch.arange(x.shape[-2]).repeat_interleave(x.shape[-1])
        return super().target_context(x, source, source_mask) + 0 * sides.unsqueeze(-1)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """my_contexts.py of the page in the working folder, known to nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(CONTEXTS, "_homes", dict(CONTEXTS._homes))
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "my_contexts.py").write_text(code + OTHERS)
    yield
    sys.modules.pop("my_contexts", None)


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_the_example_is_a_context(module):
    block = scaseg.add_context(ROWS)(6).double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    mean = block.context(x).mean(3, keepdim=True)
    torch.testing.assert_close(block(x), block.identity(x) + mean)
    shown = block.dependency_map(x, 1, 2)
    torch.testing.assert_close(shown[:, 1], torch.full((2, 5), 0.2, dtype=torch.float64))
    padded = torch.nn.functional.pad(x, (0, 3, 0, 2), value=torch.nan)
    mask = torch.zeros(2, 6, 8, dtype=torch.bool)
    mask[:, :4, :5] = True
    torch.testing.assert_close(block(padded, mask=mask)[..., :4, :5], block(x))


def test_bench_times_one(module, capsys):
    options = ["--sizes", "20", "--channels", "8", "--repeats", "1", "--json"]
    main(["bench", "--what", "contexts", "--contexts", ROWS, "average", *options])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["contender"] for row in rows] == [ROWS, "average"]


def test_a_model_does_not_bring_its_code(module, tmp_path, capsys):
    scaseg.add_context(ROWS)
    made = scaseg.create_model("tiny", ROWS, "pointwise", classes=2, share_features=True)
    made.save_pretrained(tmp_path / "model")
    CONTEXTS._homes.pop(ROWS)
    del sys.modules["my_contexts"]
    with pytest.raises(UserError, match=r"config.json: context: 'my_contexts:RowContext' is code"):
        scaseg.load_model(tmp_path / "model")
    scenes = write_scenes(tmp_path / "scenes", 4, size=(24, 32))
    command = ["evaluate", "--data", str(scenes), "--model", "model", "--device", "cpu"]
    assert f"if you trust it, --with-context {ROWS} or " in refused(capsys, *command)
    (tmp_path / "mine.yaml").write_text(f"model: {{context: '{ROWS}'}}")
    recipe = ["train", "mine.yaml", "--data", str(scenes), "--out", "run"]
    assert "model.context: " in refused(capsys, *recipe)
    assert "my_contexts" not in sys.modules
    main(["predict", "scenes/images", "--model", "model", "--out", "out", "--with-context", ROWS])
    assert "my_contexts" in sys.modules
    x = torch.randn(1, 3, 24, 32)
    assert torch.equal(scaseg.load_model("model")(x), made.eval()(x))


def test_a_comparison_takes_one_by_its_path(module, tmp_path, capsys):
    scenes = write_scenes(tmp_path / "scenes", 8, size=(24, 32))
    common = ["--data", str(scenes), *SMALL, "--device", "cpu", "--workers", "0", "--epochs", "1"]
    variant = f"{ROWS}:share_features=true"
    main(["compare", *common, "--contexts", variant, "--seeds", "1", "--out", "out", "--quiet"])
    table = capsys.readouterr().out
    assert f"| {variant} |" in table
    assert "| context | entropy of a map |" in table


def test_a_comparison_names_the_one_that_fails(module, tmp_path, capsys):
    scenes = write_scenes(tmp_path / "scenes", 8, size=(24, 32))
    common = ["compare", "--data", str(scenes), *SMALL, "--device", "cpu", "--workers", "0"]
    common += ["--out", "out", "--contexts", "average"]
    with pytest.raises(SystemExit):
        main([*common, "my_contexts:Infinite"])
    failed = "error: my_contexts:Infinite: epoch 1, step 1: the loss is not finite"
    assert failed in capsys.readouterr().err
    # what it raises is no lack of memory
    with pytest.raises(RuntimeError, match=r"^sizes differ$"):
        main([*common, "my_contexts:Raising", "--head", "light"])
    error = refused(capsys, *common, "sca:hiden=3")
    assert "--contexts: sca:hiden=3: 'hiden'; did you mean hidden? give one of layers, " in error


def test_the_example_can_be_exported(module, tmp_path):
    """A graph that ONNX Runtime refuses to run is an error of one line, and no file."""
    pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    models = {}
    for path in (ROWS, "my_contexts:Fixed"):
        scaseg.add_context(path)
        models[path] = scaseg.create_model("tiny", path, "pointwise", classes=2)
    with pytest.raises(UserError, match=r"Fixed cannot be exported \(ONNX Runtime: "):
        scaseg.export_model(models["my_contexts:Fixed"], out)
    assert not out.exists()
    with pytest.raises(UserError, match=r"format: onnx for .*model.pt2; give the other one"):
        scaseg.export_model(models[ROWS], out.with_suffix(".pt2"))
    assert scaseg.export_model(models[ROWS], out).difference < 1e-4


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Rows", r"cannot be imported \(ModuleNotFoundError"),
        ("my_contexts:Columns", r"cannot be imported \(AttributeError"),
        ("my_contexts:Wrong", "my_contexts:Wrong is no context; give a subclass of scaseg.nn"),
        ("my_contexts:Context", "my_contexts:Context is no context; give a subclass"),
        ("my_contexts:Transposed", r"of 30 neurons gives \[2, 4, 30\]; return \(B, n, M\)"),
        ("my_contexts:Misnamed", r"score_parts \('scores',\) name no parameters of it; give"),
        ("my_contexts:Leaking", "my_contexts:Leaking: padding is part of its context"),
        ("my_contexts:Smaller", r"a map of 6 x 5 neurons into \[2, 4, 3, 3\]; return \(B, M"),
        ("my_contexts", "'my_contexts'; give package.module:name"),
    ],
)
def test_paths_that_name_none(path, message, module, capsys):
    with pytest.raises(UserError, match=message):
        scaseg.add_context(path)
    error = refused(capsys, "contexts", "--with-context", path)
    assert error.startswith("error: --with-context: ")
    assert error.count("\n") == 1
