"""Networks on the meta device: the same shapes, filled from a file, nothing slow or random."""

import subprocess
import sys

import pytest
import torch

from scaseg import Segmenter, create_model
from scaseg.config.model import ModelConfig
from scaseg.models.build import _assemble, outline_model
from scaseg.models.segmenter import evaluating
from scaseg.registry import CONTEXTS


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("backbone", ["mobilenet_v2", "tiny"])
def test_the_outline_has_the_shapes_of_the_network(backbone, context):
    config = ModelConfig(("a", "b"), backbone=backbone, context=context, head="pointwise")
    outline, network = outline_model(config).state_dict(), _assemble(config).state_dict()
    assert {tensor.device.type for tensor in outline.values()} == {"meta"}
    found, expected = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
        for state in (outline, network)
    )
    assert found == expected


@pytest.mark.parametrize("module", ["torch._dynamo", "huggingface_hub"])
def test_a_model_is_loaded_without_what_is_slow(module):
    """The compiler, which random numbers without memory would import; the hub's client."""
    code = f"import sys, scaseg; scaseg.load_model('outdoor'); print('{module}' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("context", CONTEXTS)
def test_loading_draws_nothing_and_leaves_nothing_without_memory(context, tmp_path):
    made = create_model("tiny", context, "pointwise", classes=2)
    made.save_pretrained(tmp_path)
    before = torch.get_rng_state()
    model = Segmenter.from_pretrained(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(t.is_meta for t in [*model.parameters(), *model.buffers()])
    assert all(parameter.requires_grad for parameter in model.parameters())
    for name, tensor in made.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_each_module_gets_its_own_mode_back():
    model = create_model("tiny", "none", "pointwise", classes=2).train()
    model.backbone.eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert model.head.fc6.training
    assert not model.backbone.features[0].training
