"""Windows: exact where they can be, blended where they meet, and never more than a strip held."""

import resource
from itertools import pairwise

import numpy as np
import pytest
import torch

from scaseg import create_model
from scaseg.inference.predict import predict
from scaseg.inference.preprocessing import Preprocessed, resize
from scaseg.inference.sliding_window import WindowGrid, head_reach, sliding_window_inference
from scaseg.inference.tta import TestTimeAugmentation, predict_scores, upsample_rows
from tests.inference.models import as_tensor, picture, small_model

SIZES = [(160, 200), (133, 97), (64, 201), (203, 64)]


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_every_neuron_is_covered_and_one_windows_own(size, up):
    grid = WindowGrid(small_model(up=up), size, 64, 16)
    with torch.no_grad():
        features, _ = small_model(up=up).backbone(torch.zeros(1, 3, *size))
    assert grid.size == tuple(features.shape[-2:])
    for windows, neurons, pixels in zip((grid.rows, grid.columns), grid.size, size, strict=True):
        owned, shared = np.zeros(neurons, int), torch.zeros(neurons)
        for window in windows:
            owned[window.neurons][window.own] += 1
            shared[window.neurons] += window.blending
            assert 0 <= window.own.start < window.own.stop <= len(window.blending)
            assert window.pixels.start == 8 * window.neurons.start
            assert window.pixels.stop - window.pixels.start <= 64 + 7
        assert (owned == 1).all()
        torch.testing.assert_close(shared, torch.ones(neurons))
        assert windows[0].pixels.start == 0
        assert windows[-1].pixels.stop == pixels
        for before, after in pairwise(windows):
            assert before.pixels.stop - after.pixels.start >= 16


@pytest.mark.parametrize("context", ["none", "average", "sca"])
@pytest.mark.parametrize("scope", ["window", "image"])
def test_a_window_as_large_as_the_photograph_changes_nothing(context, scope):
    model, image = small_model(context), as_tensor(picture(133, 97))
    found = predict_scores(
        model, image, TestTimeAugmentation(window=133, overlap=64, context_scope=scope)
    )
    assert torch.equal(found, predict_scores(model, image))


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_without_context_only_seams_differ_from_one_pass(size, up):
    """A neuron sees one neighbour: only those at the edge of a window can differ."""
    model, image = small_model(up=up), as_tensor(picture(*size))
    view = Preprocessed(model, image)
    grid = WindowGrid(model, size, 64, 16)
    with torch.no_grad():
        whole = model.coarse(view.whole())[0][0]
        found = sliding_window_inference(model, view, 64, 16).rows(0, grid.size[0])
    unsure = torch.zeros(grid.size, dtype=torch.bool)
    for row in grid.rows:
        for edge in (row.neurons.start, row.neurons.stop - 1):
            unsure[edge] = 0 < edge < grid.size[0] - 1
    for column in grid.columns:
        for edge in (column.neurons.start, column.neurons.stop - 1):
            unsure[:, edge] |= 0 < edge < grid.size[1] - 1
    different = ((found - whole).abs() > 1e-4).any(0)
    assert not (different & ~unsure).any()
    assert different.any()


@pytest.mark.parametrize("size", SIZES)
def test_a_head_that_looks_far_sees_no_seam(size, monkeypatch):
    """It looks over the edges of windows, and over those of the parts that it is shown."""
    monkeypatch.setattr("scaseg.inference.sliding_window.COLUMNS", 11)
    model, image = small_model(), as_tensor(picture(*size))
    model.head = torch.nn.Sequential(
        torch.nn.Conv2d(16, 8, 3, padding=4, dilation=4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 5, 5, padding=2),
    )
    with torch.no_grad():  # neurons that see no neighbours: the head alone could make a seam
        model.backbone.look.weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    assert head_reach(model.head) == 6
    found = predict_scores(model, image, TestTimeAugmentation(window=64, overlap=0))
    torch.testing.assert_close(found, predict_scores(model, image), rtol=1e-4, atol=1e-5)


def test_a_real_backbone_agrees_far_from_seams():
    """mobilenet_v2, whose strides see every eighth pixel: windows must not shift them."""
    model = create_model("mobilenet_v2", "none", "compact", classes=3).eval()
    model.head.fc6.dilation = model.head.fc6.padding = (1, 1)  # a small receptive field
    for block in model.backbone.features[7:]:
        for layer in block.modules():
            if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (3, 3):
                layer.kernel_size, layer.padding = (1, 1), (0, 0)
                layer.weight = torch.nn.Parameter(layer.weight[:, :, 1:2, 1:2])
    image = as_tensor(picture(64, 389))
    tta = TestTimeAugmentation(window=240, overlap=80)
    found, whole = predict_scores(model, image, tta), predict_scores(model, image)
    assert found.shape == whole.shape
    # windows are 0-240 and 152-389: away from both inner edges by what three stages see
    for part in (slice(0, 60), slice(329, 389)):
        torch.testing.assert_close(found[..., part], whole[..., part], rtol=1e-4, atol=1e-5)
    assert (found - whole).abs().max() > 1e-4


CONTEXTS = [
    ("average", {}),
    ("sca", {}),
    ("sca", {"activation": "softplus"}),
    ("sca", {"activation": "exp"}),
    ("sca", {"activation": "identity"}),
    ("sca", {"pair_channels": 3}),
]


@pytest.mark.parametrize(("context", "options"), CONTEXTS)
def test_context_of_the_whole_image_comes_closer_to_one_pass(context, options):
    model, image = small_model(context, **options), as_tensor(picture(200, 260))
    whole = predict_scores(model, image)
    errors = {}
    for scope in ("window", "image"):
        found = predict_scores(
            model, image, TestTimeAugmentation(window=64, overlap=16, context_scope=scope)
        )
        errors[scope] = float((found - whole).abs().mean())
    assert errors["image"] < 0.35 * errors["window"], errors


@pytest.mark.parametrize(("context", "options"), CONTEXTS)
def test_gathered_context_is_the_operators(context, options):
    """Where windows do not overlap and neurons see no neighbours, nothing at all may differ."""
    model, image = small_model(context, **options), as_tensor(picture(128, 192))
    with torch.no_grad():
        model.backbone.look.weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    found = predict_scores(
        model, image, TestTimeAugmentation(window=64, overlap=0, context_scope="image")
    )
    torch.testing.assert_close(found, predict_scores(model, image), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("context", "options", "named"),
    [
        ("dot", {}, "DotContext"),
        ("sca", {"activation": "relu"}, "activation relu"),
        ("sca", {"score_bound": None}, "score_bound None"),
    ],
)
def test_what_cannot_be_gathered_is_refused(context, options, named):
    tta = TestTimeAugmentation(window=64, overlap=0, context_scope="image")
    with pytest.raises(
        ValueError, match=rf"context_scope: image .*{named}.*; use window, or"
    ) as no:
        predict_scores(small_model(context, **options), as_tensor(picture(128, 96)), tta)
    assert "\n" not in str(no.value)


def test_an_unknown_scope():
    with pytest.raises(ValueError, match="context_scope: 'all'; give one of window, image"):
        TestTimeAugmentation(context_scope="all")


@pytest.mark.parametrize("scope", ["window", "image"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_windows_in_batches_and_labels_in_bands(scope, batch_size, monkeypatch):
    model, image = small_model("sca"), picture(150, 333)
    tta = TestTimeAugmentation((0.6, 1.0), True, 64, 16, scope)
    expected = predict_scores(model, as_tensor(image), tta)
    monkeypatch.setattr("scaseg.inference.predict.MOST_HELD", 5 * 333 * 13)  # 13 rows
    found = predict(model, image, tta=tta, batch_size=batch_size, scores=True)
    np.testing.assert_allclose(found.scores, expected.numpy(), atol=1e-5)
    np.testing.assert_array_equal(found.labels, found.scores.argmax(0))


@pytest.mark.parametrize("out", [(37, 53), (100, 40), (7, 9), (20, 30)])
def test_rows_of_an_enlarged_map(out):
    scores = torch.randn(2, 3, 20, 30)
    expected = resize(scores, *out)
    for start, stop in ((0, out[0]), (0, 1), (out[0] - 1, out[0]), (2, 6)):
        found = upsample_rows(lambda a, b: scores[:, :, a:b], 20, out, start, stop)
        torch.testing.assert_close(found, expected[:, :, start:stop])


@pytest.mark.parametrize("scale", [0.3, 0.75, 1.0, 1.7])
@pytest.mark.parametrize("flipped", [False, True])
def test_strips_of_a_view(scale, flipped):
    view = Preprocessed(small_model(), as_tensor(picture(90, 70)), scale, flipped=flipped)
    whole = view.whole()
    assert tuple(whole.shape[-2:]) == view.size
    for rows in (slice(0, view.size[0]), slice(3, 11), slice(view.size[0] - 5, view.size[0])):
        torch.testing.assert_close(view.rows(rows), whole[:, :, rows], rtol=1e-4, atol=1e-4)


def test_memory_is_bounded_by_a_strip():
    """4 megapixels of 40 classes: 640 MB of probabilities, of which only some rows are held."""
    model = small_model(classes=tuple(f"class {index}" for index in range(40)))
    image = np.zeros((4_000, 1_000, 3), np.uint8)
    image[::2] = 200
    tta = TestTimeAugmentation(window=256, overlap=32)
    predict(model, image[:600], tta=tta)  # what libraries allocate
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert predict(model, image, tta=tta).labels.shape == (4_000, 1_000)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300, f"{grown} MiB"
