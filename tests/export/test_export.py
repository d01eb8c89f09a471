"""One file, checked against the model; what is in it; what it needs."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.cli import main
from scaseg.export import check
from scaseg.export import export as exporting
from scaseg.export.onnx_file import OPSET, add_labels
from scaseg.io.ownership import check_replaceable
from tests.docs.pages import ROOT
from tests.export.models import CLASSES, small_model

onnx = pytest.importorskip("onnx", reason="pip install 'scaseg[export]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'scaseg[export]'")
EXAMPLE = ROOT / "examples" / "segment_onnx.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and what the command makes of it."""
    root = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    model = small_model()
    model.config = replace(model.config, fit=(60, 80), temperature=1.5)
    model.save_pretrained(root / "model")
    main(["export", "--model", str(root / "model"), "--out", str(root / "m.onnx"), "--quiet"])
    return root


@pytest.fixture(scope="module")
def proto(place):
    return onnx.load(place / "m.onnx")


def session(proto):
    return onnxruntime.InferenceSession(proto.SerializeToString())


@pytest.mark.parametrize("shape", [(1, 33, 47), (2, 64, 64), (5, 17, 90), (1, 8, 200), (3, 101, 8)])
def test_any_batch_and_size(shape, place, proto):
    batch, height, width = shape
    images = torch.randn(batch, 3, height, width)
    with torch.no_grad():
        expected = scaseg.load_model(place / "model")(images).numpy()
    (found,) = session(proto).run(["scores"], {"images": images.numpy()})
    assert np.abs(found - expected).max() <= 1e-4 * max(1, np.abs(expected).max())


def test_the_file_is_one_and_says_what_it_is(place, proto):
    assert sorted(path.name for path in place.iterdir()) == ["m.onnx", "model"]
    onnx.checker.check_model(proto, full_check=True)
    assert [one.version for one in proto.opset_import] == [OPSET]
    (images,), (scores,) = proto.graph.input, proto.graph.output
    assert [images.name, scores.name] == ["images", "scores"]
    for value, channels in ((images, 3), (scores, 3)):
        dims = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        assert dims == ["batch", channels, "height", "width"]
    about = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(about["classes"]) == list(CLASSES)
    assert len(json.loads(about["palette"])) == 3
    assert json.loads(about["mean"]) == [0.485, 0.456, 0.406]
    assert json.loads(about["fit"]) == [60, 80]
    assert json.loads(about["temperature"]) == 1.5
    assert about["scaseg"] == scaseg.__version__
    # nothing of the machine that made it: the exporter notes where each line of code lies
    assert b".py" not in proto.SerializeToString()


def test_the_linear_form_in_float32(proto):
    """No float64, which WebGPU has not, and nothing of n x n; example sizes decide neither."""
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    kinds = {tensor.data_type for tensor in proto.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    assert onnx.TensorProto.DOUBLE not in kinds
    run = session_with_all_outputs(proto)
    neurons = {}
    for height, width in ((64, 64), (128, 128)):
        shapes = run(torch.randn(1, 3, height, width).numpy())
        neurons[height] = max(np.prod(shape) for shape in shapes)
    assert neurons[128] == pytest.approx(4 * neurons[64], rel=0.01)  # 16 times for n x n


def session_with_all_outputs(proto):
    every = onnx.ModelProto()
    every.CopyFrom(proto)
    del every.graph.output[:]
    names = [name for node in proto.graph.node for name in node.output if name]
    every.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    runtime = onnxruntime.InferenceSession(every.SerializeToString(), options)
    return lambda images: [np.shape(one) for one in runtime.run(None, {"images": images})]


@pytest.mark.parametrize("fit", [None, (60, 80), (33, 51)])
@pytest.mark.parametrize("size", [(60, 80), (41, 67), (200, 90), (123, 400)])
def test_labels_are_those_of_predict(fit, size, place, proto):
    model = scaseg.load_model(place / "model")
    model.config = replace(model.config, fit=fit)
    random = np.random.default_rng(0)
    small = random.integers(0, 256, (2, 9, 12, 3), np.uint8)
    images = np.stack([Image.fromarray(one).resize(size[::-1], 2) for one in small])
    whole = add_labels(proto, model.config)
    assert [one.version for one in whole.opset_import] == [OPSET]
    (found,) = session(whole).run(["labels"], {"images": images})
    assert found.dtype == np.uint8
    expected = np.stack([one.labels for one in model.predict(images)])
    assert found.shape == expected.shape
    assert (found != expected).mean() < 1e-3  # rounding, where two classes are alike


def test_labels_of_bands_and_of_many_classes(proto):
    config = scaseg.create_model("tiny", "none", "pointwise", classes=300, in_channels=3).config
    config = replace(config, dtype="uint16")
    network = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {OPSET}]> g (float[b, 3, h, w] images) => '
        "(float[b, 300, h, w] scores) <int64[4] times = {1, 100, 1, 1}> "
        "{ scores = Tile (images, times) }"
    )
    labels = session(add_labels(network, config))
    assert labels.get_inputs()[0].type == "tensor(float)"
    assert labels.run(None, {"images": np.ones((1, 9, 9, 3), np.float32)})[0].dtype == np.uint16


def test_thirty_lines_without_scaseg(place, tmp_path):
    code = EXAMPLE.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert len(code.splitlines()) <= 30
    image = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    Image.fromarray(image).resize((90, 70), 2).save(tmp_path / "photo.png")
    blocked = "import sys; sys.modules['torch'] = sys.modules['scaseg'] = None; "
    run = f"import runpy; sys.argv[0] = {str(EXAMPLE)!r}; runpy.run_path({str(EXAMPLE)!r})"
    files = [str(place / "m.onnx"), str(tmp_path / "photo.png"), str(tmp_path / "labels.png")]
    done = subprocess.run(
        [sys.executable, "-c", blocked + run, *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = scaseg.load_model(place / "model").predict(tmp_path / "photo.png").labels
    with Image.open(tmp_path / "labels.png") as labels:
        assert (np.asarray(labels) != expected).mean() < 0.05  # labels, not scores, are enlarged
        assert labels.mode == "P"
    assert any(name in done.stdout for name in CLASSES)


def test_the_page_shows_the_example():
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    code = EXAMPLE.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert f"```py\n{code}```" in page


def test_torch_export(place, tmp_path, capsys):
    model, out = place / "model", tmp_path / "m.pt2"
    main(["export", "--model", str(model), "--format", "torch-export", "--out", str(out)])
    said = capsys.readouterr().err
    assert "torch.export: images (batch, 3, height, width) float32 -> scores" in said
    assert said.count(" x ") >= 5
    assert "1e-04 is allowed" in said or "0.0001 is allowed" in said
    about = {"scaseg.json": ""}
    with exporting.quiet():
        program = torch.export.load(out, extra_files=about).module()
    assert json.loads(about["scaseg.json"])["classes"] == list(CLASSES)
    images = torch.randn(1, 3, 40, 51)
    with torch.no_grad():
        expected = scaseg.load_model(model)(images)
    torch.testing.assert_close(program(images), expected, rtol=1e-4, atol=1e-4)
    # ours, so that it may be replaced
    check_replaceable(out)


def test_a_graph_that_is_wrong_is_not_written(tmp_path, monkeypatch):
    trace = exporting.trace

    def other(model):
        program = trace(model)
        model.head.score.bias.data += 1e-2
        return program

    monkeypatch.setattr(exporting, "trace", other)
    with pytest.raises(scaseg.WorkError, match=r"differs from the model by 0\.0"):
        scaseg.export_model(small_model("none"), tmp_path / "m.pt2", format="torch-export")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_label_is_noticed():
    model = small_model("none")
    with pytest.raises(scaseg.WorkError, match="differs"):
        check.compare(model, lambda images: np.zeros(images.shape[:3], np.uint8), labels=True)


def test_weights_that_are_unfit(tmp_path):
    model = small_model("none")
    model.head.score.bias.data[0] = torch.nan
    with pytest.raises(scaseg.UserError, match="not finite"):
        scaseg.export_model(model, tmp_path / "m.pt2", format="torch-export")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "there.onnx"], "--out: there.onnx: is there already; use --overwrite"),
        (["--out", "there.onnx", "--overwrite"], "was not made by scaseg"),
        (["--out", "no/m.onnx"], "--out: no/m.onnx: cannot be written"),
        (
            ["--out", "m", "--format", "tflite"],
            "--format: 'tflite'; give one of onnx",
        ),
        (["--out", "m", "--format", "torch-export", "--labels"], "--labels: not with torch-export"),
        (["--out", "m", "--model", "nowhere"], "--model: nowhere: no such folder"),
    ],
)
def test_bad_input_writes_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.onnx").write_text("somebody's own")
    with pytest.raises(SystemExit) as stopped:
        main(["export", *arguments])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_text() == "somebody's own"


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("scaseg.export.onnx_file.find_spec", lambda name: None)
    with pytest.raises(scaseg.UserError, match=r"onnx is not installed; pip install 'scaseg\[exp"):
        scaseg.export_model(small_model("none"), tmp_path / "m.onnx")


def test_the_model_stays_as_it_was(tmp_path):
    model = small_model("none").train()
    model.context.backend = "dense"
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scaseg.export_model(model, tmp_path / "m.pt2", format="torch-export")
    assert model.training
    assert model.context.backend == "dense"
    assert exporting.prepare(model).context.backend == "linear"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
