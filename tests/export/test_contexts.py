"""Which contexts export, at any batch and size; the others say so in one line."""

import numpy as np
import pytest
import torch

import scaseg
from scaseg.export.onnx_file import OPSET
from scaseg.export.trace import quiet
from scaseg.registry import CONTEXTS
from tests.export.models import small_model
from tests.nn.blocks import make

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'scaseg[export]'")
pytest.importorskip("onnxscript", reason="pip install 'scaseg[export]'")

EXPORTED = [name for name in CONTEXTS if not CONTEXTS[name].not_exported]
# these take seconds each to trace with free sizes; benchmarks/export.py --contexts does
SLOW = {"heads", "ccnet"}
FREE = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
SHAPES = [(1, 6, 5, 7), (2, 6, 13, 8), (5, 6, 9, 3)]


@pytest.mark.parametrize("name", [name for name in EXPORTED if name not in SLOW])
def test_batch_and_size_stay_free(name):
    block = make(name, steps=1).eval().requires_grad_(False)
    with quiet():
        x = torch.randn(2, 6, 9, 11)
        program = torch.export.export(block, (x,), dynamic_shapes={"x": FREE}).module()
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), block(x), rtol=1e-4, atol=1e-5)


class Together(torch.nn.Module):
    """All contexts side by side: one export takes half the time of many."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(make(name) for name in EXPORTED)

    def forward(self, images):
        return tuple(block(images) for block in self.blocks)


@pytest.fixture(scope="module")
def in_onnx():
    torch.manual_seed(0)
    module, x = Together().eval().requires_grad_(False), torch.randn(2, 6, 9, 11)
    with quiet():
        program = torch.onnx.export(module, (x,), dynamo=True, opset_version=OPSET, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    results = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return {name: pair for name, *pair in zip(EXPORTED, results, module(x), strict=True)}


@pytest.mark.parametrize("name", EXPORTED)
def test_onnx_has_all_it_needs(name, in_onnx):
    found, expected = in_onnx[name]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("context", "options", "kind", "message"),
    [
        ("sca", {"activation": "relu"}, "onnx", "relu needs a binary search.*use torch-export"),
        ("sca", {"activation": "identity"}, "onnx", "identity needs a binary search"),
        ("sca", {"score_bound": None}, "onnx", "scores have no bound.*score_bound"),
        ("sca", {"score_bound": None}, "torch-export", "scores have no bound"),
        ("dagrnn", {}, "onnx", "dagrnn has no graph for all sizes .*another context"),
    ],
)
def test_those_that_do_not_say_so(context, options, kind, message, tmp_path):
    with pytest.raises(scaseg.UserError, match=message) as error:
        scaseg.export_model(small_model(context, **options), tmp_path / "m", format=kind)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


class Loose(scaseg.nn.contexts.baselines.NoContext):
    """A context of a user's own, whose graph depends on the image."""

    def target_context(self, x, source, source_mask):
        return None if float(x.mean()) > 0 else self.values(x)


def test_a_context_of_ones_own_that_does_not(tmp_path):
    model = small_model("none")
    model.context = Loose(model.context.in_channels)
    with pytest.raises(scaseg.UserError, match=r"context none cannot be exported \(torch.export"):
        scaseg.export_model(model, tmp_path / "m.pt2", format="torch-export")
    assert list(tmp_path.iterdir()) == []
