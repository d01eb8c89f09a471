"""The backbones against numbers worked out by hand, and against their undilated originals."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scaseg.models.backbones.mobilenet_v2 import MobileNetV2
from scaseg.models.backbones.vgg16 import Vgg16
from scaseg.models.heads import HEADS, SegmentationHead
from tests.models.norms import stir


def test_vgg16_layer_by_layer():
    convolutions = [layer for layer in Vgg16().features if isinstance(layer, nn.Conv2d)]
    widths = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    assert [layer.out_channels for layer in convolutions] == widths
    assert [layer.dilation[0] for layer in convolutions] == [1] * 10 + [2] * 3
    assert all(layer.stride == (1, 1) for layer in convolutions)
    pools = [i for i, layer in enumerate(Vgg16().features) if isinstance(layer, nn.MaxPool2d)]
    assert pools == [4, 9, 16]  # pool4 (23) and pool5 (30) are gone
    # sum of 9 * in * out + out over the 13 convolutions
    assert sum(p.numel() for p in Vgg16().parameters()) == 14_714_688


def receptive_field(layers):
    """Side of the square of pixels that one neuron sees, and the step between neurons."""
    size, step = 1, 1
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            kernel, stride, dilation = (
                value[0] if isinstance(value, tuple) else value
                for value in (layer.kernel_size, layer.stride, layer.dilation)
            )
            size += (kernel - 1) * dilation * step
            step *= stride
    return size, step


def test_receptive_fields_by_hand():
    """Pools add 1, 2 and 4; convolutions 2 each at steps 1, 2, 4 and 8, the last three 4."""
    backbone = Vgg16().features
    conv4 = 1 + 2 * 2 + 1 + 2 * 4 + 2 + 3 * 8 + 4 + 3 * 16
    assert conv4 == 92
    assert receptive_field(backbone[:23]) == (conv4, 8)
    assert receptive_field(backbone) == (conv4 + 3 * 32, 8)
    head = SegmentationHead(512, 3, shape=HEADS["fcn"])
    # fc6: 6 steps of 4 neurons of 8 pixels, the 6 x 32 pixels it spanned behind pool5
    assert receptive_field([*backbone, head.fc6]) == (188 + 6 * 4 * 8, 8)


def test_vgg16_is_the_original_up_to_conv4_3():
    """Undilated VGG16, written out: both must agree as long as no pool was removed."""
    backbone = Vgg16().eval()
    images = torch.randn(1, 3, 64, 80)
    x = images
    convolutions = iter(layer for layer in backbone.features if isinstance(layer, nn.Conv2d))
    for stage, count in enumerate((2, 2, 3, 3)):
        if stage:
            x = F.max_pool2d(x, 2, 2)
        for _ in range(count):
            layer = next(convolutions)
            x = F.relu(F.conv2d(x, layer.weight, layer.bias, padding=1))
    torch.testing.assert_close(backbone.features[:23](images), x)
    assert backbone(images)[0].shape == (1, 512, 8, 10)


def test_mobilenet_v2_is_the_original_on_a_finer_grid():
    """At every fourth neuron stands what the undilated network computes: strides 32, not 8."""
    backbone = stir(MobileNetV2().eval())
    original = MobileNetV2().eval()
    original.load_state_dict(backbone.state_dict())
    for index, block in enumerate(original.features[1:], start=1):
        depthwise = next(
            layer for layer in block.conv if isinstance(layer, nn.Conv2d) and layer.groups > 1
        )
        depthwise.dilation = depthwise.padding = (1, 1)
        if index in (7, 14):
            depthwise.stride = (2, 2)
    images = torch.randn(1, 3, 96, 128)
    fine, coarse = backbone(images)[0], original(images)[0]
    assert fine.shape == (1, 320, 12, 16)
    assert coarse.shape == (1, 320, 3, 4)
    torch.testing.assert_close(fine[:, :, ::4, ::4], coarse, rtol=1e-4, atol=1e-5)


def test_mobilenet_v2_parameters():
    """2,223,872 in the original's features, less the last 320 x 1280 convolution and its norm."""
    parameters = sum(p.numel() for p in MobileNetV2().parameters())
    assert parameters == 2_223_872 - 320 * 1280 - 2 * 1280


@pytest.mark.parametrize("head", HEADS)
def test_head_parameters_by_hand(head):
    width, kernel, dilation, _ = HEADS[head]
    module = SegmentationHead(512, 59, shape=HEADS[head])
    expected = 512 * width * kernel**2 + width + width * width + width + width * 59 + 59
    assert sum(p.numel() for p in module.parameters()) == expected
    assert module.fc6.dilation == (dilation, dilation)
    assert module(torch.randn(1, 512, 3, 5)).shape == (1, 59, 3, 5)
