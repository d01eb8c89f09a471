"""Heads: their parameters by hand, and the one that reads the finer maps of a backbone."""

import pytest
import torch
from torch import nn

from scaseg import create_model, load_model
from scaseg.config.run import TrainingConfig
from scaseg.data.sample import IGNORE, Batch
from scaseg.explanation.features import extract_features
from scaseg.explanation.occlusion import occluded
from scaseg.inference.preprocessing import Preprocessed
from scaseg.inference.sliding_window import WindowGrid, sliding_window_inference
from scaseg.inference.tta import TestTimeAugmentation, predict_scores
from scaseg.models.folding import fold_batch_norms
from scaseg.models.heads import HeadShape, PyramidHead, SegmentationHead
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.registry import HEADS
from scaseg.training.module import SegmentationModule
from tests.inference.models import as_tensor, picture
from tests.models.norms import assert_padding_is_nothing, stir

BACKBONES = [
    ("tiny", {}),
    ("vgg16", {"stages": 2}),
    ("mobilenet_v2", {}),
    ("mobilenet_v2", {"stride": 32, "stages": 6}),
]
ONE_EACH = pytest.mark.parametrize(("backbone", "options"), BACKBONES)


def pyramid(backbone="mobilenet_v2", context="sca", options=None, **more):
    torch.manual_seed(0)
    options = {"stride": 16} if options is None else options
    model = create_model(backbone, context, "pyramid", classes=4, backbone_options=options, **more)
    return stir(model.eval())


def tiny(context="sca", **more):
    torch.manual_seed(0)
    return stir(create_model("tiny", context, "pyramid", classes=4, **more).eval())


@pytest.mark.parametrize("head", [name for name in HEADS if isinstance(HEADS[name], HeadShape)])
def test_head_parameters_by_hand(head):
    width, kernel, dilation, _ = HEADS[head]
    module = SegmentationHead(512, 59, shape=HEADS[head])
    expected = 512 * width * kernel**2 + width + width * width + width + width * 59 + 59
    assert sum(p.numel() for p in module.parameters()) == expected
    assert module.fc6.dilation == (dilation, dilation)
    assert module(torch.randn(1, 512, 3, 5)).shape == (1, 59, 3, 5)


def test_the_pyramids_parameters_by_hand():
    width = HEADS["pyramid"].width
    head = pyramid().head
    wide = 320 * width * 9 + 2 * width
    lateral = (24 + 32) * width + 4 * width
    merge = 2 * (9 * width + 2 * width + width * width + 2 * width)
    assert sum(p.numel() for p in head.parameters()) == wide + lateral + merge + 4 * width + 4
    assert [pyramid(options={"stride": one}).head.wide[0].dilation for one in (8, 16, 32)] == [
        (12, 12),
        (6, 6),
        (3, 3),
    ]


@ONE_EACH
@pytest.mark.parametrize("size", [(8, 8), (61, 90)])
def test_any_size_comes_back_scored_at_a_quarter(backbone, options, size):
    model = pyramid(backbone, "none", options)
    with torch.no_grad():
        scores, real = model.coarse(torch.randn(2, 3, *size))
        assert model(torch.randn(2, 3, *size)).shape == (2, 4, *size)
    assert model.score_stride == 4
    assert scores.shape[-2:] == model.backbone.map_size(*size, 4)
    assert real is None


@ONE_EACH
def test_a_padded_batch_gives_what_single_images_give(backbone, options):
    assert_padding_is_nothing(pyramid(backbone, "average", options).double())


def test_norms_of_the_head_leave_padding_out_while_they_learn():
    """Two copies of an image, one of them padded, must move the statistics like one of them."""
    image, found = torch.randn(1, 3, 40, 48), []
    for padding in (0, 24):
        model = tiny("none").train()
        batch = nn.functional.pad(image, (0, padding, 0, padding), value=7.0)
        model(batch, torch.tensor([[40, 48]]))
        found.append([norm for name, norm in model.named_buffers() if "running" in name])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_every_parameter_is_trained():
    model = pyramid().train()
    loss = model(torch.randn(2, 3, 64, 64)).square().mean() + model.head.score.weight.sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad.any() for p in model.head.merge.parameters() if p.dim() > 1)


def test_a_finer_neuron_moves_the_scores_around_it_alone():
    """At 1/4 by one neuron to each side; the features at 1/16 have no part in it."""
    model = pyramid(context="none")
    for norm in model.head.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)  # some start at 0
    features = model.features(torch.randn(1, 3, 64, 64))
    (fine, _), *others = features.finer
    fine = fine.clone()
    fine[..., 8, 5] += 3.0
    with torch.no_grad():
        before, _ = model.score(features)
        after, _ = model.score(features._replace(finer=[(fine, None), *others]))
    moved = (after != before).any(1)[0]
    assert moved[8, 5]
    assert moved.sum() == moved[7:10, 4:7].sum()


def test_saved_loaded_with_other_classes_and_folded(tmp_path):
    model = pyramid(hidden=8)
    model.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.config == model.config
    image = torch.randn(1, 3, 40, 50)
    with torch.no_grad():
        expected = model(image)
        assert torch.equal(again(image), expected)
        norms = sum(isinstance(one, nn.BatchNorm2d) for one in again.modules())
        assert fold_batch_norms(again) == norms
        torch.testing.assert_close(again(image), expected, rtol=1e-3, atol=1e-4)
    other = load_model(tmp_path / "model", classes=["class 2", "car"])
    assert torch.equal(other.head.score.weight[0], model.head.score.weight[2])


@pytest.mark.parametrize("size", [(160, 200), (133, 97), (64, 201)])
def test_windows_cover_every_finer_neuron(size):
    for model in (tiny("none"), pyramid("vgg16", "none", {"stages": 2})):
        grid = WindowGrid(model, size, 64, 16)
        assert grid.size == model.backbone.map_size(*size, 4)
        for windows, neurons in zip((grid.rows, grid.columns), grid.size, strict=True):
            shared = torch.zeros(neurons)
            for window in windows:
                shared[window.blended] += window.blending
            torch.testing.assert_close(shared, torch.ones(neurons))
        with torch.no_grad():
            found = sliding_window_inference(model, Preprocessed(model, noise(*size)), 64, 16)
            assert found.rows(0, grid.size[0]).shape == (4, *grid.size)


def noise(height, width):
    return as_tensor(picture(height, width))


def test_windows_agree_with_one_pass_far_from_seams():
    model = tiny("none")
    model.head.wide[0].dilation = model.head.wide[0].padding = (1, 1)  # a small receptive field
    image = noise(64, 389)
    tta = TestTimeAugmentation(window=240, overlap=80)
    found, whole = predict_scores(model, image, tta), predict_scores(model, image)
    for part in (slice(0, 110), slice(279, 389)):
        torch.testing.assert_close(found[..., part], whole[..., part], rtol=1e-4, atol=1e-5)
    assert (found - whole).abs().max() > 1e-4
    same = TestTimeAugmentation(window=389, overlap=64, context_scope="image")
    assert torch.equal(
        predict_scores(tiny("average"), image, same), predict_scores(tiny("average"), image)
    )


def test_maps_are_of_the_neurons_of_the_features():
    model = tiny("sca", hidden=8)
    seen = extract_features(model, picture(40, 56))
    assert seen.classes().shape == (5, 7)
    everyone = torch.ones(2, 35, dtype=torch.bool)
    with torch.no_grad():
        scores = model.coarse(Preprocessed(model, noise(40, 56)).whole())[0]
        expected = nn.functional.avg_pool2d(scores, 2).softmax(1).flatten(2)
        torch.testing.assert_close(occluded(seen, everyone)[1:], expected, rtol=1e-4, atol=1e-5)
        everyone[1, 3] = False
        assert not torch.equal(*occluded(seen, everyone))


def test_auxiliary_scores_are_judged_on_their_own_neurons():
    """Classifier at 1/8, head at 1/4, a padded batch: the loss is that of the single image."""
    module = SegmentationModule(tiny("object"), TrainingConfig(class_weights="none"))
    images = torch.randint(0, 256, (1, 3, 40, 48), dtype=torch.uint8)
    labels = torch.randint(0, 4, (1, 40, 48), dtype=torch.uint8)
    losses = []
    for more in (0, 16):
        shape = (0, more, 0, more)
        batch = Batch(
            images=nn.functional.pad(images, shape),
            labels=nn.functional.pad(labels, shape, value=IGNORE),
            sizes=torch.tensor([[40, 48]]),
            names=["one"],
        )
        with torch.no_grad(), auxiliary_scores(module.model) as others:
            losses.append(module.batch_loss(batch))
        assert others[0][1].shape[-1] == (48 + more) // 8
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_a_backbone_without_finer_maps_is_refused(monkeypatch):
    monkeypatch.setattr("scaseg.models.backbones.tiny.Tiny.finer", ())
    with pytest.raises(ValueError, match="head: pyramid, but Tiny has no finer maps; use light"):
        create_model("tiny", "none", "pyramid", classes=2)
    assert isinstance(pyramid().head, PyramidHead)
