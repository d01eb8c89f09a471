"""`predict --engine onnx`: the labels of the model itself, from a file that is made once."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from scaseg.cli import main
from scaseg.export.trace import quiet
from scaseg.inference import onnx_engine, pipeline
from scaseg.ops.chebyshev import cardinal_basis, chebyshev_nodes
from tests.export.models import small_model
from tests.inference.models import picture

onnxruntime = pytest.importorskip("onnxruntime")


def test_predicting_by_onnx_runtime(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SCASEG_CACHE", str(tmp_path / "cache"))
    small_model().save_pretrained(tmp_path / "model")
    (tmp_path / "photos").mkdir()
    for number, size in enumerate(((61, 90), (80, 64))):
        Image.fromarray(picture(*size)).save(tmp_path / f"photos/{number}.png")
    command = ["predict", str(tmp_path / "photos"), "--model", str(tmp_path / "model")]
    main([*command, "--engine", "local", "--device", "cpu", "--out", str(tmp_path / "local")])
    main([*command, "--engine", "onnx", "--out", str(tmp_path / "first")])
    assert "exporting the model for ONNX Runtime, once: " in capsys.readouterr().err
    (made,) = (tmp_path / "cache/onnx").iterdir()
    before = made.stat().st_mtime_ns
    used = []
    monkeypatch.setattr(
        onnx_engine, "use_onnx", lambda *given, use=onnx_engine.use_onnx: used.append(use(*given))
    )
    cores, stream = [], pipeline.predict_stream
    monkeypatch.setattr(
        pipeline, "predict_stream", lambda *g, **o: cores.append(o["cores"]) or stream(*g, **o)
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    main([*command, "--engine", "onnx", "--tta", "--out", str(tmp_path / "second")])
    assert cores == [1]  # ONNX Runtime has threads of its own
    assert "exporting" not in capsys.readouterr().err
    assert used == [None]
    assert made.stat().st_mtime_ns == before
    for number in range(2):
        found, expected = (
            np.asarray(Image.open(tmp_path / name / f"{number}.png")) for name in ("first", "local")
        )
        assert len(np.unique(expected)) > 1
        np.testing.assert_array_equal(found, expected)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SCASEG_CACHE", str(tmp_path / "a.png"))
    Image.fromarray(picture(20, 30)).save(tmp_path / "a.png")
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match="2"):
        main(["predict", str(tmp_path / "a.png"), "--engine", "onnx", "--out", str(out)])
    said = "a.png/onnx: cannot be written (Not a directory); set SCASEG_CACHE to another folder"
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_scores_on_a_node_are_finite():
    class Basis(nn.Module):
        def forward(self, x):
            return cardinal_basis(x, 8)

    nodes = chebyshev_nodes(8, torch.empty(1))
    with torch.no_grad(), quiet():
        program = torch.export.export(Basis().eval(), (nodes,))
        exported = torch.onnx.export(program, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    (name,) = (one.name for one in session.get_inputs())
    # ONNX Runtime's cosine may differ in the last digit: then they are near the nodes
    (found,) = session.run(None, {name: nodes.numpy()})
    np.testing.assert_allclose(found, np.eye(8), atol=1e-4)


@pytest.mark.parametrize(
    "option",
    [
        ("--window", "512"),
        ("--precision", "bf16"),
        ("--device", "cuda"),
        ("--min-confidence", "7"),
        ("--overwrite", "--skip-existing"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_export(tmp_path, monkeypatch, capsys, option):
    monkeypatch.setenv("SCASEG_CACHE", str(tmp_path / "cache"))
    Image.fromarray(picture(20, 30)).save(tmp_path / "a.png")
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path), "--engine", "onnx", *option, "--out", str(tmp_path / "o")])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {option[0]}: ")
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "cache/onnx").exists()
