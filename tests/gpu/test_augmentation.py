"""The GPU augments as loaders do, to rounding."""

import pytest
import torch

import scaseg
from scaseg.config.run import AugmentConfig, TrainingConfig
from scaseg.data.device_augmentation import augment, collate_planned
from scaseg.data.loading import TrainingDataset
from scaseg.data.transforms import build_transforms
from scaseg.training.module import SegmentationModule
from tests.data.test_device_augmentation import CHAINS, Photographs, assert_alike, both

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


def test_batches_are_augmented_beside_what_the_gpu_computes():
    """In a stream of their own: the step must wait for it, and its memory for the step."""
    model = scaseg.create_model("mobilenet_v2", head="light", classes=3)
    module = SegmentationModule(model, TrainingConfig()).to("cuda")
    chain = build_transforms(AugmentConfig(brightness=0.2, scale=(0.5, 2.0), crop=(256, 256)))
    examples = TrainingDataset(Photographs(), chain, seed=1, plans=True)
    batches = [
        collate_planned([examples[epoch, index] for index in range(len(examples))])
        for epoch in range(12)
    ]
    busy, found = torch.randn(4096, 4096, device="cuda"), []
    for batch in batches:
        busy = (busy @ busy).tanh()
        augmented = module.transfer_batch_to_device(batch, torch.device("cuda"), 0)
        busy = (busy @ busy).tanh()  # the batch is read long after the host has let go of it
        found.append((augmented.images.double().sum(), augmented.labels.double().sum()))
        del augmented
    for batch, sums in zip(batches, found, strict=True):
        expected = augment(batch, "cuda")
        assert float(sums[0]) == float(expected.images.double().sum())
        assert float(sums[1]) == float(expected.labels.double().sum())
