"""The whole network: sizes, padding, parts, and life on disk."""

import json

import pytest
import torch
import torch.nn.functional as F

from scaseg import create_model, load_model
from scaseg.models.padding import enlarge, real_pixels, strided
from scaseg.registry import BACKBONES, CONTEXTS
from tests.models.norms import assert_padding_is_nothing, stir
from tests.shared import MOBILENET_V2, VGG16, needs

# every backbone with the paper's context, every context behind a light backbone
NETWORKS = pytest.mark.parametrize(
    ("backbone", "context"),
    [*((name, "sca") for name in BACKBONES), *(("tiny", name) for name in CONTEXTS)],
)


def small(context="sca", backbone="mobilenet_v2", **options):
    options = {"hidden": 16, **options} if context == "sca" else options
    return create_model(backbone, context, "compact", classes=4, **options).eval()


def test_the_papers_network_by_the_numbers():
    model = create_model(classes=59)
    counted = {
        name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()
    }
    predictor = 3 * (512 * 512 + 512) + 2 * 512 + 1
    assert counted == {
        "backbone": 14_714_688,
        "context": 2 * 512 * 512 + predictor,
        "head": 102_764_544 + 16_781_312 + 59 * 4096 + 59,  # fc6 and fc7 as in VGG16
    }


@NETWORKS
@pytest.mark.parametrize("size", [(8, 8), (61, 90), (97, 33)])
def test_any_size_comes_back(backbone, context, size):
    model = small(context, backbone)
    with torch.no_grad():
        assert model(torch.randn(2, 3, *size)).shape == (2, 4, *size)


@NETWORKS
def test_a_padded_batch_gives_what_single_images_give(backbone, context):
    assert_padding_is_nothing(stir(small(context, backbone)).double())


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_parameter_is_trained(context):
    model = create_model("mobilenet_v2", context, "compact", classes=3, in_channels=3)
    loss = model(torch.randn(2, 3, 64, 64)).square().mean() + model.head.score.weight.sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("context", CONTEXTS)
def test_saved_and_loaded_it_is_the_same_model(context, tmp_path):
    model = small(context)
    model.save_pretrained(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    again = load_model(tmp_path / "model")
    assert again.config == model.config
    assert not again.training
    x = torch.randn(1, 3, 40, 50)
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


def test_config_json_is_readable(tmp_path):
    model = create_model("mobilenet_v2", head="compact", classes=["sky", "höhe"], pair_channels=2)
    model.save_pretrained(tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert plain["id2label"] == {"0": "sky", "1": "höhe"}
    assert plain["context_options"] == {"pair_channels": 2}
    assert plain["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json; give a folder written by"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda f: (f / "config.json").write_text("{"), "not JSON"),
        (lambda f: (f / "config.json").write_text("[1]"), "holds a list"),
        (lambda f: (f / "config.json").write_text("{}"), "classes: is missing"),
        (lambda f: change(f, backbone="resnet"), "backbone: 'resnet'; did you mean resnet50"),
        (lambda f: change(f, lr=1), "lr: unknown key; a model config has"),
        (lambda f: change(f, classes=["a", "b"]), "head.score.bias has shape"),
        (lambda f: change(f, context="none"), "which the model of config.json has not"),
        (lambda f: change(f, context_options={"wide": 3}), "context_options.wide: unknown key"),
        (lambda f: (f / "model.safetensors").write_bytes(b"PK\x03\x04"), "not a safetensors file"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(damage, message, tmp_path):
    small().save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message) as refused:
        load_model(tmp_path)
    assert "\n" not in str(refused.value)


def change(folder, **keys):
    path = folder / "config.json"
    plain = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps(plain))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"backbone": "vgg19"},
            r"backbone: 'vgg19'; did you mean vgg16\? give one of vgg16",
        ),
        ({"context": "lstm"}, "context: 'lstm'; give one of none, average, sca, dot"),
        ({"head": "big"}, "head: 'big'; give one of fcn, compact"),
        ({"classes": []}, "classes: none; name at least one"),
        ({"classes": "sky"}, "classes: 'sky'; give a list of names"),
        ({"classes": ["a", "a"]}, "classes: 'a' is named twice"),
        ({"depth": 3}, "context_options.depth: unknown key"),
        (
            {"backbone_options": {"depth": 3}},
            "backbone_options.depth: unknown key; give some of stages, stride",
        ),
        ({"backbone_options": {"stride": 4}}, "backbone_options.stride: 4; give 8, 16 or 32"),
        (
            {"backbone_options": {"stages": 8}},
            "backbone_options.stages: 8; give a whole number from 3 to 7",
        ),
        (
            {"backbone": "vgg16", "backbone_options": {"stride": 16}},
            "backbone_options.stride: has no effect: vgg16 does not take it; it is for mob",
        ),
        (
            {"backbone_weights": "nowhere.safetensors"},
            "nowhere.safetensors is neither a file nor a model",
        ),
    ],
)
def test_wrong_names_are_refused(options, message):
    arguments = {"backbone": "mobilenet_v2", "head": "compact", "classes": 2, **options}
    with pytest.raises(ValueError, match=message):
        create_model(**arguments)


@pytest.mark.parametrize(
    ("images", "sizes", "message"),
    [
        (torch.randn(1, 1, 32, 32), None, r"images: shape \(1, 1, 32, 32\); give \(B, 3"),
        (torch.randn(1, 3, 7, 32), None, "at least 8 x 8 pixels"),
        (torch.randn(1, 3, 32, 32), torch.tensor([32, 32]), "sizes: shape"),
        (torch.randn(1, 3, 32, 32), [[32, 32]], "sizes: a list; give a tensor"),
        (torch.randn(1, 3, 32, 32), torch.tensor([[40, 32]]), "each image must lie within it"),
    ],
)
def test_wrong_images_are_refused(images, sizes, message):
    with pytest.raises(ValueError, match=message):
        small()(images, sizes)


def test_grey_images():
    model = create_model("mobilenet_v2", head="compact", classes=2, in_channels=1).eval()
    assert model(torch.randn(1, 1, 32, 40)).shape == (1, 2, 32, 40)
    assert model.config.mean == (0.5,)


@needs(VGG16)
def test_imagenet_weights_of_vgg16_recognise_edges():
    model = create_model(classes=3, head="compact", backbone_weights=VGG16).eval()
    first = model.backbone.features[0].weight
    assert 0.05 < first.std() < 1
    with torch.no_grad():
        flat, noisy = (
            model.backbone(x)[0] for x in (torch.zeros(1, 3, 64, 64), torch.randn(1, 3, 64, 64))
        )
    assert noisy.std() > flat.std()


@needs(MOBILENET_V2)
def test_imagenet_weights_of_mobilenet_v2_load_whole():
    model = create_model("mobilenet_v2", classes=3, head="compact", backbone_weights=MOBILENET_V2)
    norms = [m for m in model.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert all((norm.running_var != 1).any() for norm in norms)


def test_half_the_size(tmp_path):
    """Filters in 16 bits, norms as they are; what cannot be held in 16 bits is refused."""
    model = small()
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "half", half=True)
    whole, half = (
        (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")
    )
    assert half < 0.55 * whole
    again = load_model(tmp_path / "half")
    assert next(again.parameters()).dtype == torch.float32
    image = torch.randn(1, 3, 40, 48)
    with torch.no_grad():
        expected = model.eval()(image)
        assert (again(image) - expected).abs().mean() < 0.02 * expected.std()
    for name, tensor in model.state_dict().items():
        if tensor.dim() < 2:
            assert torch.equal(again.state_dict()[name], tensor)
    with torch.no_grad():
        model.head.score.weight.fill_(1e6)
    with pytest.raises(ValueError, match=r"head.score.weight has numbers beyond 16 bits"):
        model.save_pretrained(tmp_path / "new", half=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_padded_batch_is_enlarged_as_its_images_one_by_one(dtype):
    torch.manual_seed(0)
    sizes = torch.tensor([[61, 90], [83, 47], [8, 96], [90, 96]])
    real = strided(strided(strided(real_pixels(sizes, 90, 96))))
    scores = torch.randn(4, 3, 12, 12).to(dtype).requires_grad_()
    found = enlarge(scores, (90, 96), sizes, real)
    expected = torch.zeros_like(found)
    for index, (height, width) in enumerate(sizes.tolist()):
        part = scores[index : index + 1, :, : -(-height // 8), : -(-width // 8)]
        full = F.interpolate(part, (height, width), mode="bilinear", align_corners=False)
        expected[index, :, :height, :width] = full[0]
    assert found.dtype == dtype
    allowed = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=allowed)
    push = torch.randn_like(found)
    (ours,) = torch.autograd.grad(found, scores, push, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected, scores, push)
    # bfloat16: theirs adds 64 pixels up in 8 bits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=30 * allowed)
    for index, (height, width) in enumerate(sizes.tolist()):
        assert not found[index, :, height:].any()
        assert not found[index, :, :, width:].any()
