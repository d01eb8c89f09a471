"""The GPU augments as loaders do, to rounding."""

import pytest
import torch

from scaseg.config.run import AugmentConfig
from tests.data.test_device_augmentation import CHAINS, assert_alike, both

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize(("chain", "levels"), CHAINS)
def test_a_gpu_makes_what_loaders_make(chain, levels, precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)  # as a training does
    try:
        assert_alike(*both(AugmentConfig(**chain), "cuda"), levels)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
