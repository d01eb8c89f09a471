"""Folded networks give what they gave, in padded batches too."""

import pytest
import torch

from scaseg import create_model
from scaseg.comparison.jobs import parse_variant
from scaseg.models import folding
from scaseg.models.folding import fold_batch_norms, for_prediction
from scaseg.nn.convolution import PointwiseConv2d
from scaseg.ops import products
from tests.models.norms import stir


@pytest.mark.parametrize(
    ("backbone", "norms"), [("mobilenet_v2", 52 - 1), ("tiny", 5), ("vgg16", 0)]
)
def test_a_folded_network_says_the_same(backbone, norms):
    torch.manual_seed(0)
    model = stir(create_model(backbone, "sca", "light", classes=4, hidden=8)).double().eval()
    images, sizes = torch.randn(2, 3, 40, 48).double(), torch.tensor([[40, 48], [33, 25]])
    with torch.no_grad():
        before = model(images), model(images, sizes)
        assert before[0].std() > 1e-3
        assert fold_batch_norms(model) == norms
        after = model(images), model(images, sizes)
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize("wider", [True, False])
@pytest.mark.parametrize(
    ("backbone", "head", "context"),
    [
        ("mobilenet_v2", "pyramid", "dot:sharpness=1"),
        ("mobilenet_v2", "light", "sca"),
        ("resnet50", "light", "none"),
    ],
)
def test_a_network_for_prediction_says_the_same(backbone, head, context, wider, monkeypatch):
    """Also twice, since much of it is computed in place, and of the same images."""
    monkeypatch.setattr(folding, "prefers_convolutions", lambda: wider)
    monkeypatch.setattr(products, "prefers_convolutions", lambda: wider)
    torch.manual_seed(0)
    options = {"backbone_options": {"stride": 16}} if head == "pyramid" else {}
    kind, own = parse_variant(context)
    model = stir(create_model(backbone, kind, head, classes=4, **options, **own)).eval()
    images, sizes = torch.randn(2, 3, 80, 96), torch.tensor([[80, 96], [66, 50]])
    kept = images.clone()
    with torch.no_grad():
        before = model(images), model(images, sizes)
        for_prediction(model)
        for _ in range(2):
            after = model(images), model(images, sizes)
            torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-4)
            assert torch.equal(images, kept)
    assert not any(module.training for module in model.modules())
    replaced = [isinstance(one, PointwiseConv2d) for one in model.modules()]
    assert any(replaced) == wider
