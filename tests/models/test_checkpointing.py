"""Activation checkpointing: the same gradients and statistics, and less is kept."""

import pytest
import torch

import scaseg

BACKBONES = {"tiny": 0.8, "mobilenet_v2": 0.4, "resnet50": 0.5, "vgg16": 0.6}  # what is kept


def trained(model, images, sizes):
    """Gradients and buffers after one pass, and the bytes that were kept for the way back."""
    model.train()
    model.zero_grad()
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features, _ = model.backbone(images, sizes)
        loss = features.square().mean()
    weights = {one.data_ptr() for one in model.parameters()}
    size = sum(size for place, size in kept.items() if place not in weights)
    loss.backward()
    gradients = {name: one.grad.clone() for name, one in model.backbone.named_parameters()}
    return gradients, {name: one.clone() for name, one in model.named_buffers()}, size


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_same_gradients_and_statistics_of_less(backbone, padded):
    torch.manual_seed(0)
    model = scaseg.create_model(backbone, head="light", classes=2)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    images, real = torch.randn(2, 3, 48, 64), None
    if padded:
        real = torch.ones(2, 48, 64, dtype=torch.bool)
        real[1, 40:] = False
    found = []
    for checkpoints in (False, True):
        model.load_state_dict(state)
        model.backbone.checkpoints_activations = checkpoints
        found.append(trained(model, images, real))
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        for name in one:
            assert torch.equal(one[name], other[name]), name
    assert found[1][2] < BACKBONES[backbone] * found[0][2]
