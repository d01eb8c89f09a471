"""`predict --engine onnx`: the labels of the model itself, from a file that is made once."""

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.inference import pipeline
from tests.export.models import small_model
from tests.inference.models import picture

pytest.importorskip("onnxruntime")


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
        pipeline, "use_onnx", lambda *given, use=pipeline.use_onnx: used.append(use(*given))
    )
    main([*command, "--engine", "onnx", "--tta", "--out", str(tmp_path / "second")])
    assert "exporting" not in capsys.readouterr().err
    assert used == [None]
    assert made.stat().st_mtime_ns == before
    for number in range(2):
        found, expected = (
            np.asarray(Image.open(tmp_path / name / f"{number}.png")) for name in ("first", "local")
        )
        assert len(np.unique(expected)) > 1
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "option", [("--window", "512"), ("--precision", "bf16"), ("--device", "cuda")]
)
def test_what_it_cannot_do_is_refused(tmp_path, monkeypatch, capsys, option):
    monkeypatch.setattr("scaseg.export.cached.cached_onnx", lambda *given: tmp_path / "none.onnx")
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path), "--engine", "onnx", *option, "--out", str(tmp_path / "o")])
    assert f"error: {option[0]}: {option[1]} came with --engine onnx" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
