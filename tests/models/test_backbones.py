"""Every backbone by one base test; each against numbers by hand and its undilated original."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from scaseg import create_model
from scaseg.models.backbones.base import Backbone
from scaseg.models.backbones.mobilenet_v2 import MobileNetV2
from scaseg.models.backbones.vgg16 import STAGES, Vgg16
from scaseg.models.heads import SegmentationHead
from scaseg.registry import BACKBONES, HEADS
from tests.models.norms import stir


class BaseBackboneTest:
    """What every backbone must do. A new one adds a subclass: its name and its parameters."""

    name: str
    parameters: int

    @pytest.fixture
    def backbone(self):
        torch.manual_seed(0)
        return stir(BACKBONES[self.name]().eval())

    def test_it_says_what_it_is(self, backbone):
        assert isinstance(backbone, Backbone)
        assert sum(p.numel() for p in backbone.parameters()) == self.parameters
        assert backbone.usual_head in HEADS
        assert len(backbone.mean) == len(backbone.std) == 3

    @pytest.mark.parametrize("size", [(8, 8), (15, 9), (64, 80), (61, 90)])
    def test_every_level_has_the_size_that_it_says(self, backbone, size):
        images = torch.randn(2, 3, *size)
        with torch.no_grad():
            maps = backbone.pyramid(images)
            assert torch.equal(backbone(images)[0], maps[-1][0])
        strides = [level.stride for level in backbone.levels]
        assert strides == sorted(set(strides))
        assert backbone.levels[-1] == (backbone.out_channels, backbone.stride)
        for (features, real), (channels, stride) in zip(maps, backbone.levels, strict=True):
            assert features.shape == (2, channels, *backbone.map_size(*size, stride))
            assert real is None

    def test_every_level_is_padded_like_the_edge_of_a_single_image(self, backbone):
        backbone = backbone.double()
        images = torch.randn(2, 3, 45, 52, dtype=torch.float64)
        real = torch.zeros(2, 45, 52, dtype=torch.bool)
        real[0] = real[1, :37, :29] = True
        with torch.no_grad():
            together = backbone.pyramid(images * real[:, None], real)
            alone = backbone.pyramid(images[1:, :, :37, :29])
        for (features, left), (single, _) in zip(together, alone, strict=True):
            rows, columns = single.shape[-2:]
            assert single.std() > 1e-3, "a network that says nothing agrees with everything"
            torch.testing.assert_close(
                features[1:, :, :rows, :columns], single, rtol=1e-6, atol=1e-8
            )
            assert left[0].all()
            assert left[1].sum() == left[1, :rows, :columns].sum() == rows * columns
            assert not features[1][:, ~left[1]].any()

    def test_a_neuron_lies_in_the_middle_of_what_it_sees(self, backbone):
        """Gradients of one neuron: with positive weights nothing cancels, nothing is cut off."""
        for module in backbone.modules():
            if isinstance(module, nn.MaxPool2d):  # passes gradients to the largest pixel only
                module.forward = lambda x, pool=module: F.avg_pool2d(
                    x, pool.kernel_size, pool.stride, pool.padding
                )
            if isinstance(module, nn.ReLU6):
                module.forward = F.relu
            if isinstance(module, nn.BatchNorm2d):
                nn.init.zeros_(module.running_mean)
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Conv2d):
                nn.init.constant_(module.weight, 1 / module.weight[0].numel())
        height = backbone.stride * 80  # a narrow image will do: rows alone are looked at
        images = torch.ones(1, 3, height, backbone.stride, requires_grad=True)
        middle = backbone.map_size(height, backbone.stride)[0] // 2
        backbone(images)[0][0, :, middle].sum().backward()
        felt = images.grad[0].sum((0, 2))
        assert felt[0] == felt[-1] == 0, "it must see no edge"
        rows = torch.arange(height)[felt > 0]
        center = float(rows[0] + rows[-1]) / 2
        assert center == pytest.approx(backbone.offset + backbone.stride * middle, abs=0.01)

    def test_other_input_channels(self):
        grey = BACKBONES[self.name](1).eval()
        with torch.no_grad():
            assert grey(torch.randn(1, 1, 16, 24))[0].shape[1] == grey.out_channels

    @pytest.fixture
    def foreign(self):
        """Names of one weight in torchvision's and timm's files, by ours."""
        return {}

    def test_weights_of_other_libraries(self, foreign, tmp_path):
        """A file in each naming fills every weight; what a classifier has beside is passed over."""
        for rename in foreign.values():
            source = BACKBONES[self.name]()
            state = {
                name: torch.rand_like(tensor) + 0.1
                for name, tensor in source.state_dict().items()
                if not name.endswith("num_batches_tracked")
            }
            written = {rename(name): tensor for name, tensor in state.items()}
            save_file({**written, "fc.weight": torch.zeros(2)}, tmp_path / "net.safetensors")
            model = create_model(
                self.name, "none", "light", classes=2, backbone_weights=tmp_path / "net.safetensors"
            )
            for name, tensor in state.items():
                assert torch.equal(model.backbone.state_dict()[name], tensor), name


def original(backbone, is_strided):
    """The same weights without dilation: strides where `is_strided(name)` says so."""
    plain = copy.deepcopy(backbone)
    for name, layer in plain.named_modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3):
            layer.dilation = layer.padding = (1, 1)
        if isinstance(layer, nn.Conv2d) and is_strided(name):
            layer.stride = (2, 2)
    return plain


def assert_finer_grid(backbone, plain):
    """At every fourth neuron stands what the undilated network computes: stride 32, not 8."""
    images = torch.randn(1, 3, 96, 128, dtype=torch.float64)
    with torch.no_grad():
        fine, coarse = backbone.double()(images)[0], plain.double()(images)[0]
    assert fine.shape[-2:] == (12, 16)
    assert coarse.shape[-2:] == (3, 4)
    torch.testing.assert_close(fine[:, :, ::4, ::4], coarse, rtol=1e-6, atol=1e-8)


class TestVgg16(BaseBackboneTest):
    name = "vgg16"
    parameters = 14_714_688  # sum of 9 * in * out + out over the 13 convolutions

    @pytest.fixture
    def foreign(self):
        return {"torchvision, timm": str}

    def test_layer_by_layer(self, backbone):
        convolutions = [layer for layer in backbone.features if isinstance(layer, nn.Conv2d)]
        widths = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
        assert [layer.out_channels for layer in convolutions] == widths
        assert [layer.dilation[0] for layer in convolutions] == [1] * 10 + [2] * 3
        assert all(layer.stride == (1, 1) for layer in convolutions)
        pools = [i for i, layer in enumerate(backbone.features) if isinstance(layer, nn.MaxPool2d)]
        assert pools == [4, 9, 16]  # pool4 (23) and pool5 (30) are gone

    def test_receptive_fields_by_hand(self, backbone):
        """Pools add 1, 2 and 4; convolutions 2 each at steps 1, 2, 4 and 8, the last three 4."""
        features = backbone.features
        conv4 = 1 + 2 * 2 + 1 + 2 * 4 + 2 + 3 * 8 + 4 + 3 * 16
        assert conv4 == 92
        assert receptive_field(features[:23]) == (conv4, 8)
        assert receptive_field(features) == (conv4 + 3 * 32, 8)
        head = SegmentationHead(512, 3, shape=HEADS["fcn"])
        # fc6: 6 steps of 4 neurons of 8 pixels, the 6 x 32 pixels it spanned behind pool5
        assert receptive_field([*features, head.fc6]) == (188 + 6 * 4 * 8, 8)

    def test_it_is_the_original_up_to_conv4_3(self, backbone):
        """Undilated VGG16, written out: both must agree as long as no pool was removed."""
        x = images = torch.randn(1, 3, 64, 80)
        convolutions = iter(layer for layer in backbone.features if isinstance(layer, nn.Conv2d))
        for stage, count in enumerate((2, 2, 3, 3)):
            if stage:
                x = F.max_pool2d(x, 2, 2)
            for _ in range(count):
                layer = next(convolutions)
                x = F.relu(F.conv2d(x, layer.weight, layer.bias, padding=1))
        torch.testing.assert_close(backbone.features[:23](images), x)

    @pytest.mark.parametrize(("stages", "sees"), [(2, 20), (3, 44), (4, 92)])
    def test_fewer_stages_see_less_on_the_same_grid(self, backbone, stages, sees):
        """The same weights up to there; pools add 1, 2 and 4, convolutions 2 at each step."""
        cut = Vgg16(stages=stages).eval()
        own = cut.state_dict()
        cut.load_state_dict({name: backbone.state_dict()[name] for name in own})
        image = torch.randn(1, 3, 61, 90)
        with torch.no_grad():
            (finer, _), (features, _) = cut.pyramid(image)
            whole, _ = backbone.pyramid(image)[0]
        assert features.shape == (1, STAGES[stages - 1][-1], 7, 11)
        assert receptive_field(cut.features) == (sees, 8)
        if stages >= 3:
            torch.testing.assert_close(finer, whole)


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


class TestMobileNetV2(BaseBackboneTest):
    name = "mobilenet_v2"
    # the original's features, less the last 320 x 1280 convolution and its norm
    parameters = 2_223_872 - 320 * 1280 - 2 * 1280

    @pytest.fixture
    def foreign(self):
        return {"ours": str, "torchvision": self.in_torchvision, "timm": self.in_timm}

    @staticmethod
    def in_torchvision(name):
        if name.startswith("features.0."):
            return name
        _, block, _, layer, kind = name.split(".")
        layer, last = int(layer), 3 if block == "1" else 6
        place = f"{layer // 3}.{layer % 3}" if layer < last else f"{last // 3 + layer - last}"
        return f"features.{block}.conv.{place}.{kind}"

    @staticmethod
    def in_timm(name):
        if name.startswith("features.0."):
            return name.replace("features.0.0", "conv_stem").replace("features.0.1", "bn1")
        _, block, _, layer, kind = name.split(".")
        stages = [(stage, at) for stage, n in enumerate((1, 2, 3, 4, 3, 3, 1)) for at in range(n)]
        stage, at = stages[int(block) - 1]
        names = ["conv_pw", "bn1", "", "conv_dw", "bn2", "", "conv_pwl", "bn3"]
        if stage == 0:
            names = ["conv_dw", "bn1", "", "conv_pw", "bn2"]
        return f"blocks.{stage}.{at}.{names[int(layer)]}.{kind}"

    def test_it_is_the_original_on_a_finer_grid(self, backbone):
        strided = re.compile(r"features\.(7|14)\.conv\.3$")
        assert_finer_grid(backbone, original(backbone, strided.match))

    @pytest.mark.parametrize(("stride", "finer"), [(16, (24, 32)), (32, (24, 32, 96))])
    def test_larger_strides_are_the_same_network_on_a_coarser_grid(self, backbone, stride, finer):
        coarse = MobileNetV2(stride=stride).eval()
        coarse.load_state_dict(backbone.state_dict())
        assert [level.channels for level in coarse.finer] == list(finer)
        image = torch.randn(1, 3, 96, 128)
        with torch.no_grad():
            maps, fine = coarse.pyramid(image), backbone(image)[0]
        step = stride // 8
        torch.testing.assert_close(maps[-1][0], fine[:, :, ::step, ::step], rtol=1e-4, atol=1e-4)
        assert maps[-1][0].shape[-2:] == coarse.map_size(96, 128) == (96 // stride, 128 // stride)

    def test_fewer_stages(self, backbone):
        cut = MobileNetV2(stages=4)
        assert (cut.stride, cut.out_channels, len(cut.features)) == (8, 64, 1 + 1 + 2 + 3 + 4)
        assert MobileNetV2(stages=5, stride=32).levels == ((24, 4), (32, 8), (96, 16))


class TestResNet50(BaseBackboneTest):
    name = "resnet50"
    parameters = 25_557_032 - 2048 * 1000 - 1000  # torchvision's, less its classifier

    @pytest.fixture
    def foreign(self):
        return {"torchvision, timm": str}

    def test_names_and_shapes_are_torchvisions(self, backbone):
        """Written out from torchvision's resnet50: 16 blocks of three convolutions and norms."""
        norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        expected = {"conv1.weight": (64, 3, 7, 7)}
        expected |= {f"bn1.{kind}": (64,) for kind in norm}
        channels = 64
        for layer, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
            for block in range(blocks):
                wide, at = 4 * width, f"layer{layer}.{block}"
                shapes = {
                    "1": (width, channels, 1, 1),
                    "2": (width, width, 3, 3),
                    "3": (wide, width, 1, 1),
                }
                for number, shape in shapes.items():
                    expected[f"{at}.conv{number}.weight"] = shape
                    expected |= {f"{at}.bn{number}.{kind}": shape[:1] for kind in norm}
                if block == 0:
                    expected[f"{at}.downsample.0.weight"] = (wide, channels, 1, 1)
                    expected |= {f"{at}.downsample.1.{kind}": (wide,) for kind in norm}
                channels = wide
        expected = {k: () if k.endswith("tracked") else shape for k, shape in expected.items()}
        found = {name: tuple(tensor.shape) for name, tensor in backbone.state_dict().items()}
        assert found == expected

    def test_it_is_the_original_on_a_finer_grid(self, backbone):
        strided = re.compile(r"layer[34]\.0\.(conv2|downsample\.0)$")
        assert_finer_grid(backbone, original(backbone, strided.match))


class TestTiny(BaseBackboneTest):
    name = "tiny"
    parameters = 3 * 9 * 16 + 16 * 9 * 32 + 32 * 9 * 48 + 48 * 9 * 64 + 64 * 64 + 2 * 224


def test_every_backbone_is_tested():
    assert {kind.name for kind in BaseBackboneTest.__subclasses__()} == set(BACKBONES)
