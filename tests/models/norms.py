"""What padding must not change, and batch norms that would show it."""

import torch
from torch import nn


def stir(module: nn.Module) -> nn.Module:
    """Batch norms that matter: a fresh one maps zero to zero, and would hide what padding does."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -0.2, 0.2)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.3, 0.3)
    return module


def assert_padding_is_nothing(model):
    """A padded batch gives what single images give, whatever padding holds."""
    images = [torch.randn(1, 3, 61, 90).double(), torch.randn(1, 3, 83, 47).double()]
    batch = torch.full((2, 3, 90, 96), torch.nan, dtype=torch.float64)
    for index, image in enumerate(images):
        batch[index, :, : image.shape[2], : image.shape[3]] = image[0]
    with torch.no_grad():
        together = model(batch, torch.tensor([[61, 90], [83, 47]]))
        for index, image in enumerate(images):
            alone = model(image)
            part = together[index : index + 1, :, : image.shape[2], : image.shape[3]]
            assert alone.std() > 1e-3, "a network that says nothing agrees with everything"
            torch.testing.assert_close(part, alone, rtol=1e-6, atol=1e-8)
            assert (together[index, :, image.shape[2] :] == 0).all()
