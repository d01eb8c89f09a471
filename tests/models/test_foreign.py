"""Backbones of transformers and timm, small and with random weights: what they say, and keep."""

import re
import sys
import types
from dataclasses import replace

import pytest
import torch

import scaseg
from scaseg.errors import UserError
from scaseg.models.backbones.foreign import choose_levels, missing_library
from scaseg.registry import BACKBONES
from scaseg.training.module import SegmentationModule
from tests.models.norms import stir
from tests.training import quick

pytest.importorskip("transformers", reason="needs pip install 'scaseg[hf]'")

FOUR = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
HEADS = {"num_attention_heads": [1, 2, 3, 4], **FOUR}
DINO = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": 56}
CONFIGS = {
    "resnet": {**FOUR, "embedding_size": 8},
    "convnext": {**FOUR, "layer_scale_init_value": 0.5},
    "swin": {"embed_dim": 8, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 2, 2], "window_size": 4},
    "dinov2": {**DINO, "patch_size": 14},
    "segformer": HEADS,
    "pvt_v2": HEADS,
}
LEVELS = [(8, 4), (16, 8), (24, 16), (32, 32)]
STAGES = {**dict.fromkeys(CONFIGS, LEVELS), "dinov2": [(16, 14)]}
STAGES["swin"] = [(8, 4), (16, 8), (32, 16), (64, 32)]
# with the stem, which is a part of the first stage of the last two
LAYERS = {**dict.fromkeys(CONFIGS, 6), "dinov2": 5, "segformer": 5, "pvt_v2": 5}


def small(name, **more):
    head = "light" if name == "dinov2" else "pyramid"
    config = {"model_type": name, **CONFIGS[name]}
    options = {"config": config, **more}
    torch.manual_seed(0)
    return scaseg.create_model(
        f"hf:{name}", "sca", head, classes=3, backbone_options=options, hidden=8
    )


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    return stir(small(request.param).eval())


def name_of(model):
    return model.config.backbone.partition(":")[2]


def test_it_says_what_it_is(model):
    backbone = model.backbone
    assert list(backbone.levels) == STAGES[name_of(model)]
    assert backbone.offset == (0 if name_of(model) in ("resnet", "segformer", "pvt_v2") else
                               (backbone.stride - 1) / 2)  # fmt: skip
    assert BACKBONES[model.config.backbone] is type(backbone)


@pytest.mark.parametrize("size", [(8, 8), (61, 90), (64, 96)])
def test_images_of_any_size(model, size):
    with torch.no_grad():
        maps = model.backbone.pyramid(torch.randn(2, 3, *size))
        assert model(torch.randn(1, 3, *size)).shape == (1, 3, *size)
    for (features, real), level in zip(maps, model.backbone.levels, strict=True):
        expected = model.backbone.map_size(*size, level.stride)
        assert features.shape == (2, level.channels, *expected)
        assert real is None


def test_a_padded_batch_gives_what_single_images_give(model):
    """Also where attention looks at everything: padding is nobody's context."""
    model.double()
    images = torch.randn(3, 3, 70, 101, dtype=torch.float64)
    sizes = torch.tensor([[70, 101], [33, 64], [70, 101]])
    try:
        with torch.no_grad():
            together = model(images, sizes)
            alone = model(images[1:2, :, :33, :64])
        assert alone.std() > 1e-3
        torch.testing.assert_close(together[1:2, :, :33, :64], alone, rtol=1e-6, atol=1e-8)
        assert (together[1, :, 33:] == 0).all()
    finally:
        model.float()


def test_a_model_is_rebuilt_from_its_file_alone(model, tmp_path, monkeypatch):
    """No hub, no random number, and buffers that are computed are there."""

    def nobody(*args, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.create_connection", nobody)
    monkeypatch.setattr("huggingface_hub.snapshot_download", nobody)
    model.save_pretrained(tmp_path)
    before = torch.get_rng_state()
    again = scaseg.load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    images = torch.randn(1, 3, 40, 70)
    with torch.no_grad():
        assert torch.equal(model(images), again(images))
    assert again.config == model.config


def test_predicting_rounds_sizes_up_once(model):
    """The network is given a multiple of its stride, also at other scales and in windows."""
    found = model.predict((torch.rand(3, 50, 61) * 255).byte(), scores=True)
    assert found.labels.shape == (50, 61)
    tta = scaseg.inference.tta.TestTimeAugmentation(window=64, overlap=32)
    image = (torch.rand(3, 100, 140) * 255).byte()
    assert model.predict(image, tta=tta).labels.shape == (100, 140)


def test_it_is_exported_for_every_size(tmp_path):
    """Also where its images are enlarged: compared on odd sizes before a file is written."""
    pytest.importorskip("onnxruntime", reason="pip install 'scaseg[export]'")
    pytest.importorskip("onnxscript", reason="pip install 'scaseg[export]'")
    one = stir(small("dinov2").eval())
    one.head.score.weight.data.normal_(std=0.5)  # classes that vary
    one.config = replace(one.config, fit=(60, 80))
    for labels in (False, True):
        path = tmp_path / f"{labels}.onnx"
        assert scaseg.export_model(one, path, labels=labels).difference <= 1e-4


def test_layers_are_the_blocks_from_the_image_on(model):
    layers = model.backbone.layers()
    assert len(layers) == LAYERS[name_of(model)]
    names = {id(weight): name for name, weight in model.backbone.named_parameters()}
    assert sorted(names[id(w)] for layer in layers for w in layer) == sorted(names.values())
    assert any("embed" in names[id(weight)] for weight in layers[0])
    deepest = r"layer\.3\." if name_of(model) == "dinov2" else r"\.3\.(layers|blocks)\.0\."
    assert any(re.search(deepest, names[id(weight)]) for weight in layers[-1])


@pytest.mark.parametrize("name", ["vgg16", "mobilenet_v2", "resnet50", "tiny"])
def test_layers_of_our_own(name):
    with torch.device("meta"):
        backbone = BACKBONES[name]()
    counts = {"vgg16": 13, "mobilenet_v2": 18, "resnet50": 16, "tiny": 5}
    assert len(backbone.layers()) == counts[name]
    total = sum(weight.numel() for layer in backbone.layers() for weight in layer)
    assert total == sum(weight.numel() for weight in backbone.parameters())


def test_rates_fall_towards_the_image():
    run = quick.settings("anywhere", training__layer_decay=0.5, training__lr=0.1)
    module = SegmentationModule(small("convnext"), run.training)
    [optimizer], _ = module.configure_optimizers()
    rates = [group["initial_lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([0.1 * 0.5**depth for depth in (5, 4, 3, 2, 1, 0)] + [1.0])
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(
        list(module.model.parameters())
    )


def test_a_frozen_one_leaves_nothing_out_at_random():
    run = quick.settings("anywhere", training__freeze_backbone="true")
    module = SegmentationModule(small("swin"), run.training).train()
    assert not any(part.training for part in module.model.backbone.modules())
    assert module.model.head.training


def test_activations_can_be_computed_again():
    model, images = small("dinov2").train(), torch.randn(1, 3, 28, 42)
    model.head.eval()  # no dropout
    model(images).sum().backward()
    before = [weight.grad.clone() for weight in model.backbone.parameters()]
    model.zero_grad()
    model.backbone.checkpoints_activations = True
    assert model.backbone.network.is_gradient_checkpointing
    model(images).sum().backward()
    for weight, grad in zip(model.backbone.parameters(), before, strict=True):
        torch.testing.assert_close(weight.grad, grad)
    with pytest.raises(UserError, match="ResNetBackbone has no layers to compute again"):
        small("resnet").backbone.checkpoints_activations = True


def test_a_coarser_stage_can_be_left_out():
    backbone = small("resnet", stride=16).backbone
    assert list(backbone.levels) == LEVELS[:3]
    with pytest.raises(UserError, match=r"backbone_options\.stride: 2; give one of 4, 8, 16, 32"):
        small("resnet", stride=2)


def test_names_and_options_that_are_none():
    with pytest.raises(UserError, match=r"vgg17.*hf:NAME, timm:NAME"):
        scaseg.create_model("vgg17", classes=2)
    with pytest.raises(UserError, match="backbone"):
        scaseg.create_model("hf:", classes=2)
    with pytest.raises(UserError, match="nowhere/nothing: not here"):
        scaseg.create_model("hf:nowhere/nothing", classes=2)
    with pytest.raises(UserError, match="stages: has no effect: hf:x does not take it"):
        scaseg.create_model("hf:x", classes=2, backbone_options={"stages": 3})


def test_a_torchvision_of_another_torch_is_named(monkeypatch):
    """As transformers and timm fail then: the reason lies behind an error of their own."""

    class Broken(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            try:
                raise RuntimeError("operator torchvision::nms does not exist")
            except RuntimeError as reason:
                raise ModuleNotFoundError(f"Could not import module '{name}'") from reason

    for library in ("transformers", "timm"):
        monkeypatch.setitem(sys.modules, library, Broken(library))
    with pytest.raises(UserError, match=r"torchvision is installed, but not for this torch.*pip"):
        small("segformer")
    lost = ModuleNotFoundError("No module named 'timm'", name="timm")
    said = str(missing_library("timm", "pip install timm", lost))
    assert said == "backbone: timm is not installed; pip install timm"


def test_levels_are_the_last_of_each_stride():
    maps = [(16, 2), (24, 4), (32, 8), (40, 8), (48, 16)]
    assert choose_levels(maps) == [1, 3, 4]
    assert choose_levels(maps, 8) == [1, 3]
    assert choose_levels([(8, 16)] * 12) == [11]


class TestTimm:
    """For real where timm can be imported: it needs the torchvision of this very torch."""

    @pytest.fixture(autouse=True)
    def timm(self):
        try:
            import timm
        except (ImportError, RuntimeError) as fault:
            pytest.skip(f"timm cannot be imported here: {fault}")
        return timm

    @pytest.mark.parametrize(
        ("name", "stride", "levels"),
        [
            ("resnet18", 8, [(64, 4), (512, 8)]),
            ("resnet18", None, [(64, 4), (128, 8), (256, 16), (512, 32)]),
            ("test_convnext", None, [(24, 4), (32, 8), (48, 16), (64, 32)]),
        ],
    )
    def test_a_model_of_timm(self, name, stride, levels, tmp_path):
        options = {} if stride is None else {"output_stride": stride}
        model = scaseg.create_model(
            f"timm:{name}", "sca", "pyramid", classes=3, backbone_options=options, hidden=8
        ).eval()
        assert list(model.backbone.levels) == levels
        model.save_pretrained(tmp_path)
        images, sizes = torch.randn(2, 3, 64, 90), torch.tensor([[64, 90], [40, 33]])
        again = scaseg.load_model(tmp_path)
        with torch.no_grad():
            together = model(images, sizes)
            alone = model(images[1:, :, :40, :33])
            torch.testing.assert_close(together[1:, :, :40, :33], alone, rtol=1e-4, atol=1e-5)
            assert torch.equal(again(images), model(images))

    def test_what_timm_does_not_have(self):
        with pytest.raises(UserError, match="timm has no 'resnet_none'"):
            scaseg.create_model("timm:resnet_none", classes=2)
        with pytest.raises(UserError, match="timm has no 'hf-hub:a/b'"):
            scaseg.create_model("timm:hf-hub:a/b", classes=2)
