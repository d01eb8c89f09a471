"""A network laid out without its weights: the same shapes, and nothing slow for them."""

import subprocess
import sys

import pytest

from scaseg.config.model import ModelConfig
from scaseg.models.build import _assemble, outline_model
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


def test_a_model_is_loaded_without_the_compiler():
    """Random numbers for tensors without memory would import it: seconds of every command."""
    code = "import sys, scaseg; scaseg.load_model('outdoor'); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
