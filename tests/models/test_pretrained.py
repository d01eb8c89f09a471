"""Weights of other libraries, written here in their own names and shapes."""

import logging

import pytest
import torch
from safetensors.torch import save_file

from scaseg import create_model, load_model
from scaseg.io.model_folder import BUILTIN


def vgg16_state(names, fc_shape):
    """A small-valued VGG16 with classifier, in the given names."""
    source = create_model(classes=2, head="fcn", context="none")
    state = {name: torch.randn_like(p) * 0.01 for name, p in source.backbone.named_parameters()}
    state[f"{names[0]}.weight"] = torch.randn(4096, 512, 7, 7).mul_(0.01).view(4096, *fc_shape[0])
    state[f"{names[1]}.weight"] = torch.randn(4096, 4096).mul_(0.01).view(4096, *fc_shape[1])
    for name in names:
        state[f"{name}.bias"] = torch.randn(4096)
    return state


@pytest.mark.parametrize(
    ("names", "fc_shape"),
    [
        (("classifier.0", "classifier.3"), ((25088,), (4096,))),  # torchvision
        (("pre_logits.fc1", "pre_logits.fc2"), ((512, 7, 7), (4096, 1, 1))),  # timm
    ],
)
def test_the_classifier_becomes_the_head(names, fc_shape, tmp_path, caplog):
    state = vgg16_state(names, fc_shape)
    save_file(state, tmp_path / "vgg.safetensors")
    with caplog.at_level(logging.INFO, logger="scaseg"):
        model = create_model(
            classes=2, context="none", backbone_weights=tmp_path / "vgg.safetensors"
        )
    assert torch.equal(model.head.fc6.weight, state[f"{names[0]}.weight"].view(4096, 512, 7, 7))
    assert torch.equal(model.head.fc7.bias, state[f"{names[1]}.bias"])
    assert torch.equal(model.backbone.features[28].bias, state["features.28.bias"])
    assert "head.fc6, head.fc7" in caplog.text


def test_other_input_channels_respond_alike(tmp_path):
    """One picture in every channel gives what it gave in red, green and blue."""
    source = create_model("mobilenet_v2", classes=2, head="compact", context="none").eval()
    save_file(
        {k: v for k, v in source.backbone.state_dict().items() if "tracked" not in k},
        tmp_path / "net.safetensors",
    )
    picture = torch.randn(1, 1, 40, 40)
    expected = source.backbone(picture.expand(-1, 3, -1, -1))[0]
    for channels in (1, 5):
        model = create_model(
            "mobilenet_v2",
            classes=2,
            head="compact",
            context="none",
            in_channels=channels,
            backbone_weights=tmp_path / "net.safetensors",
        ).eval()
        found = model.backbone(picture.expand(-1, channels, -1, -1))[0]
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    # the first three of more than three bands are red, green and blue
    first, old = model.backbone.features[0][0].weight, source.backbone.features[0][0].weight
    assert torch.equal(first[:, :3], old * (3 / 5))
    assert torch.equal(first[:, 3], old.mean(1) * (3 / 5))


def test_weights_of_another_network_are_refused(tmp_path):
    save_file({"features.0.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"safetensors: features.0.weight has shape \(3,\); this"):
        create_model(classes=2, head="compact", backbone_weights=tmp_path / "other.safetensors")
    save_file({"layer1.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"has no features.0.weight; give weights of this backbone"
    ):
        create_model(classes=2, head="compact", backbone_weights=tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ValueError, match="not a safetensors file"):
        create_model(classes=2, head="compact", backbone_weights=tmp_path / "text.safetensors")


@pytest.mark.parametrize("source", ["saved", "saved/model.safetensors"])
def test_the_backbone_of_another_model(source, tmp_path):
    other = create_model("tiny", "sca", "pointwise", classes=3, hidden=8)
    other.save_pretrained(tmp_path / "saved")
    model = create_model("tiny", "none", "pointwise", classes=5, backbone_weights=tmp_path / source)
    theirs = other.backbone.state_dict()
    assert theirs
    for name, tensor in model.backbone.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    assert not torch.equal(model.head.fc6.weight, other.head.fc6.weight)  # its head stays fresh


@pytest.mark.parametrize("source", ["outdoor", BUILTIN / "outdoor" / "model.safetensors"])
def test_the_backbone_of_the_built_in_model(source):
    ours, theirs = (
        create_model("mobilenet_v2", "none", "light", classes=2, backbone_weights=source),
        load_model("outdoor"),
    )
    for name, tensor in ours.backbone.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, theirs.backbone.state_dict()[name]), name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "outdoor",
            "outdoor has the backbone mobilenet_v2, not vgg16; give imagenet, null",
        ),
        ("outdor", "outdor is neither a file nor a model; give imagenet, a safetensors file, a ru"),
        ("x" * 300, "is neither a file nor a model"),
        (".", r"\. is neither a file nor a model"),
    ],
)
def test_what_has_no_such_backbone_is_refused(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        create_model("vgg16", classes=2, backbone_weights=source)
