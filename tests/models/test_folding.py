"""Folded networks give what they gave, in padded batches too."""

import pytest
import torch

from scaseg import create_model
from scaseg.models.folding import fold_batch_norms
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
