"""One call from a photograph, in whatever form, to a segmentation of its own size."""

import inspect

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.data.decode.image import read_image, read_labels
from scaseg.inference.batching import SizeQueue
from scaseg.inference.predict import predict, predict_stream
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.tta import TestTimeAugmentation, predict_scores
from scaseg.plots.palette import _entries, default_palette
from tests.inference.models import CLASSES, as_tensor, picture, refuse_unwaited_copies, small_model


def test_only_a_gpu_is_not_waited_for(monkeypatch):
    refuse_unwaited_copies(monkeypatch)
    for sizes in ([(61, 85)], [(61, 85), (59, 83)], [(61, 85)] * 2):
        images = [picture(*size) for size in sizes]
        keyed = enumerate(images)
        found = list(predict_stream(small_model("sca"), keyed, batch_size=2, confidence=True))
        assert len(found) == len(sizes)


def test_every_form_of_a_photograph_gives_the_same(tmp_path):
    model, image = small_model("sca"), picture(61, 85)
    Image.fromarray(image).save(tmp_path / "photo.png")
    expected = predict_scores(model, as_tensor(image)).argmax(0).numpy()
    for form in (
        image,
        as_tensor(image),
        Image.fromarray(image),
        tmp_path / "photo.png",
        str(tmp_path / "photo.png"),
        np.flip(np.flip(image, 0).copy(), 0),  # negative strides
        np.frombuffer(image.tobytes(), np.uint8).reshape(image.shape),  # read-only
        image / 255,  # floats from 0 to 1
        (image / 255).astype(np.float32),
        as_tensor(image).float() / 255,
        as_tensor(image).double() / 255,
    ):
        found = model.predict(form)
        assert isinstance(found, Segmentation)
        np.testing.assert_array_equal(found.labels, expected)
        np.testing.assert_array_equal(found.image, image)
        assert found.classes == CLASSES
        assert found.palette == default_palette(5)
        assert found.scores is None
        assert found.size == (61, 85)
        for one in model.predict([form, form], batch_size=2):  # as on a GPU, where 8 is usual
            np.testing.assert_array_equal(one.labels, expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (4000, 1), (7, 9), (8, 8), (33, 47)])
@pytest.mark.parametrize("fit", [None, (24, 24)])
def test_any_size_comes_back(size, fit):
    found = small_model("sca", fit=fit).predict(picture(*size), scores=True)
    assert found.labels.shape == size
    assert found.scores.shape == (5, *size)
    np.testing.assert_allclose(found.scores.sum(0), 1, rtol=1e-5)
    np.testing.assert_array_equal(found.scores.argmax(0), found.labels)


MIXED = [(60, 80), (58, 80), (64, 77), (80, 60), (1, 1), (9, 200), (60, 80), (79, 62)]


@pytest.mark.parametrize(
    "tta",
    [
        TestTimeAugmentation(),
        TestTimeAugmentation((0.7, 1.0), True),
        TestTimeAugmentation(window=72),
    ],
)
@pytest.mark.parametrize("backbone", ["small", "mobilenet_v2"])
def test_a_batch_gives_what_single_photographs_give(tta, backbone):
    model = small_model("sca")
    if backbone == "mobilenet_v2":
        model = scaseg.create_model(backbone, head="compact", classes=CLASSES, hidden=4).eval()
    images = [picture(*size, seed=place) for place, size in enumerate(MIXED)]
    shapes = []
    handle = model.context.register_forward_pre_hook(lambda _, x: shapes.append(len(x[0])))
    together = predict(model, images, tta=tta, scores=True, batch_size=3)
    handle.remove()
    assert max(shapes) == 3
    for image, found in zip(images, together, strict=True):
        alone = predict(model, image, tta=tta, scores=True)
        assert found.labels.shape == image.shape[:2]
        np.testing.assert_allclose(found.scores, alone.scores, atol=2e-5)


def test_lists_and_what_is_iterated():
    model = small_model()
    assert predict(model, []) == []
    assert len(predict(model, (picture(9, 9),))) == 1
    found = predict(model, (picture(9, 9 + index) for index in range(5)), batch_size=2)
    assert [one.size for one in found] == [(9, 9 + index) for index in range(5)]


def test_a_batch_is_several():
    model, images = small_model("sca"), np.stack([picture(24, 32, seed) for seed in (1, 2)])
    expected = [one.labels for one in model.predict(list(images))]
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    for form in (images, images / 255, batch, batch.float() / 255, iter(batch)):
        found = model.predict(form)
        assert len(found) == 2
        for one, labels in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.labels, labels)
    assert model.predict(batch[:0]) == []


def test_options_are_named():
    """Both ways of calling it say which options there are, and refuse others."""
    for function in (predict, scaseg.Segmenter.predict):
        parameters = inspect.signature(function).parameters.values()
        named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        assert named == ["scores", "tta", "batch_size", "precision", "min_confidence"]
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters)
    with pytest.raises(TypeError, match="unexpected keyword argument 'flip'"):
        small_model().predict(picture(9, 9), flip=True)


def test_a_batch_is_normalized_as_predict_does_it():
    model, image = small_model(), picture(24, 32)
    expected = model.predict(image, scores=True).scores
    for pixels in (as_tensor(image), as_tensor(image) / 255):
        with torch.no_grad():
            scores = model(model.normalize(pixels[None])).softmax(1)[0]
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert model.normalize(as_tensor(image)).shape == (3, 24, 32)
    for wrong, message in (
        (torch.randn(1, 3, 9, 9), "values from -"),
        (torch.zeros(1, 4, 9, 9), r"images: shape \(1, 4, 9, 9\); give \(B, 3, H, W\)"),
        (torch.zeros(1, 3, 9, 9, dtype=torch.int64), "images: torch.int64; give uint8"),
    ):
        with pytest.raises(ValueError, match=message):
            model.normalize(wrong)


def test_similar_sizes_wait_for_each_other():
    queue = SizeQueue(small_model(), TestTimeAugmentation(), 4)
    for size in [(80, 60), (60, 80), (81, 60), (200, 300)]:
        assert not queue.add(size, *size)
    batches = list(iter(queue.take, []))
    assert batches == [[(80, 60), (81, 60)], [(60, 80)], [(200, 300)]]


@pytest.mark.parametrize(("batch_size", "pixels", "most"), [(2, 10**6, 8), (100, 8 * 48 * 16, 14)])
def test_nothing_waits_for_ever(monkeypatch, batch_size, pixels, most):
    """Streams of any length are worked through with a short queue, of images and of pixels."""
    monkeypatch.setattr("scaseg.inference.batching.MOST_QUEUED", pixels)
    taken = []

    def stream():
        for index in range(40):
            taken.append(index)
            yield index, picture(16 + 16 * (index % 3), 16)

    found = predict_stream(small_model(), stream(), batch_size=batch_size)
    next(found)
    assert len(taken) <= most
    assert len(list(found)) == 39


def test_the_mode_of_every_module_is_left_alone():
    model = scaseg.create_model("mobilenet_v2", head="compact", classes=3, hidden=4)
    model.train()
    model.backbone.features[3].eval()
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = model.predict(picture(20, 30), scores=True)
    np.testing.assert_array_equal(first.scores, model.predict(picture(20, 30), scores=True).scores)
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(ValueError, match="image: shape"):
        model.predict([picture(20, 30), np.zeros((3, 3, 3), np.int32)])
    assert modes == [module.training for module in model.modules()]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("precision", ["bf16", "16"])
def test_low_precision_is_near(precision):
    model, image = small_model("sca"), picture(60, 80)
    exact, rough = (model.predict(image, scores=True, precision=p) for p in ("32", precision))
    assert rough.scores.dtype == np.float32
    difference = np.abs(exact.scores - rough.scores).mean()
    assert 0 < difference < 0.05


def test_other_channels_than_three():
    model = small_model(channels=4)
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 4), np.uint8)
    found = model.predict(image)
    assert found.size == (20, 30)
    np.testing.assert_array_equal(model.predict(as_tensor(image)).labels, found.labels)
    assert found.overlay().mode == "RGB"  # of the first three
    with pytest.raises(ValueError, match=r"image: 3 channels; the model takes 4"):
        model.predict(picture(9, 9))


def test_a_grey_array():
    gray = picture(20, 30)[..., 0]
    model = small_model()
    expected = model.predict(np.repeat(gray[:, :, None], 3, axis=2))
    np.testing.assert_array_equal(model.predict(gray).labels, expected.labels)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 4, 3), np.int32), r"shape \(3, 4, 3\) and dtype int32; give a path, .*B in"),
        (np.full((3, 4, 3), 254.0), "image: values from 254 to 254; give floats from 0 to 1"),
        (torch.randn(3, 9, 9), "image: values from -.*; give floats .* not normalized"),
        (torch.full((3, 9, 9), torch.nan), "image: values from nan to nan"),
        (torch.zeros(1, 2, 3, 4, 4, dtype=torch.uint8), "several as a list"),
        (np.zeros((0, 4, 3), np.uint8), "shape"),
        (torch.zeros(4, 4, 3, dtype=torch.uint8), "image: 4 channels; the model takes 3"),
        (7, "image: a int; give a path, a PIL image"),
        (None, "image: a NoneType"),
        ("nowhere.jpg", "nowhere.jpg: no such file"),
        ([7], "image: a int"),
        (b"an open file", "image: a bytes; give a path"),
    ],
)
def test_what_is_no_photograph(image, message):
    with pytest.raises(ValueError, match=message):
        small_model().predict(image)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: 0; give a whole number"),
        ({"batch_size": True}, "batch_size: True"),
        ({"precision": "fp8"}, "precision: 'fp8'; .*give one of 32, bf16, 16"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        small_model().predict(picture(9, 9), **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_model_of_another_precision_is_told_how(dtype):
    with pytest.raises(ValueError, match=rf'{dtype}; call model.float\(\); precision="bf16"'):
        small_model().to(dtype).predict(picture(20, 30))


def test_saved_label_maps_read_back(tmp_path):
    found = small_model().predict(picture(40, 50))
    found.save(tmp_path / "labels.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "labels.png"), found.labels)
    with Image.open(tmp_path / "labels.png") as written:
        assert written.mode == "P"
        colors = np.asarray(written.convert("RGB"))
    np.testing.assert_array_equal(colors, np.array(found.palette, np.uint8)[found.labels])
    assert [path.name for path in tmp_path.iterdir()] == ["labels.png"]
    with pytest.raises(ValueError, match=r"labels.jpg: not a .png"):
        found.save(tmp_path / "labels.jpg")
    with pytest.raises(ValueError, match=r"gone: no such folder"):
        found.save(tmp_path / "gone/labels.png")


def test_more_classes_than_a_palette_has(tmp_path):
    model = small_model(classes=tuple(f"class {index}" for index in range(300)))
    found = model.predict(picture(40, 50))
    assert found.labels.dtype == np.uint16
    found.labels[0, 0] = 299
    found.save(tmp_path / "labels.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "labels.png"), found.labels)
    assert found.overlay(legend=True).size[0] >= 50


@pytest.mark.parametrize("height", [16, 600])
def test_large_label_maps_are_packed_faster_and_read_the_same(height, tmp_path):
    labels = np.random.default_rng(0).integers(0, 3, (height, 512)).astype(np.uint8)
    labels[0, 0] = 255  # unsure
    found = Segmentation(labels, ("a", "b", "c"), default_palette(3))
    found.save(tmp_path / "labels.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "labels.png"), labels)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "labels.png")), labels)


def test_areas_sum_to_one():
    found = small_model().predict(picture(40, 50))
    areas = found.areas()
    assert tuple(areas) == CLASSES
    assert sum(areas.values()) == pytest.approx(1)
    for place, name in enumerate(CLASSES):
        assert areas[name] == pytest.approx((found.labels == place).mean())


@pytest.mark.parametrize("size", [(1, 1), (40, 50), (300, 20), (200, 900)])
def test_overlays(size):
    found = small_model().predict(picture(*size))
    plain, named = found.overlay(), found.overlay(opacity=0.3, legend=True)
    assert plain.size == (size[1], size[0])
    assert named.width >= plain.width
    assert named.height > plain.height
    assert max(found.overlay(max_side=10).size) <= 10
    np.testing.assert_array_equal(np.asarray(found.overlay(0.0)), found.image)


def test_the_models_own_palette_is_used():
    model = small_model()
    own = tuple((index, 0, 0) for index in range(5))
    object.__setattr__(model.config, "palette", own)
    assert model.predict(picture(9, 9)).palette == own


def test_files_are_read_as_photographs(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(picture(30, 50)).save(tmp_path / "photo.jpg", exif=turned)
    assert small_model().predict(tmp_path / "photo.jpg").size == (50, 30)
    with Image.open(tmp_path / "photo.jpg") as image:
        assert small_model().predict(image).size == (50, 30)
    assert read_image(tmp_path / "photo.jpg").shape == (50, 30, 3)


def test_a_legend_of_171_classes_is_no_larger_than_its_picture():
    labels = (np.arange(240 * 320) % 171).astype(np.uint8).reshape(240, 320)
    names = tuple(f"a class called {index}" for index in range(171))
    image = np.zeros((240, 320, 3), np.uint8)
    found = Segmentation(labels, names, default_palette(171), image=image)
    assert found.overlay(legend=True).height < 2 * 240 + 30


def test_a_legend_names_what_occurs():
    areas = {"small": 0.0005, "absent": 0.0, "large": 0.7, "mid\ndle": 0.2995}
    colors = default_palette(4)
    assert _entries(areas, colors) == [
        (colors[2], "large  70.0 %"),
        (colors[3], "mid dle  29.9 %"),
        (None, "1 more  0.1 %"),
    ]
    assert _entries(areas, colors, 1)[1:] == [(None, "2 more  30.0 %")]


@pytest.mark.parametrize(
    ("shares", "scores", "said"),
    [
        ([41, 22, 0, 0, 37], False, "5 classes: 41 % sky, 37 % house, 22 % tree)"),
        ([30, 25, 24, 20, 1], True, "5 classes: 30 % sky, 25 % tree, 24 % road, ...; with scores)"),
        ([100, 0, 0, 0, 0], False, "5 classes: 100 % sky)"),
    ],
)
def test_printed_it_is_one_short_line(shares, scores, said):
    labels = np.repeat(np.arange(5), np.array(shares) * 12).reshape(30, 40).astype(np.uint8)
    probabilities = np.zeros((5, 30, 40), np.float32) if scores else None
    found = Segmentation(labels, CLASSES, default_palette(5), probabilities)
    assert repr(found) == f"Segmentation(40x30, {said}"
