"""On a GPU a batch is computed while the last one comes back: each image gets its own labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.errors import UserError
from scaseg.inference import pipeline, predict, preprocessing
from scaseg.inference.predict import predict_stream
from scaseg.inference.preprocessing import Preprocessed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def photographs(count):
    random = np.random.default_rng(0)
    for key in range(count):
        size = (40 + 8 * (key % 3), 56 + 8 * (key % 2))
        coarse = random.integers(0, 256, (5, 7, 3), np.uint8)
        rows, columns = (
            np.arange(side) * part // side for side, part in zip(size, (5, 7), strict=True)
        )
        yield key, np.ascontiguousarray(coarse[rows][:, columns])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return scaseg.create_model("mobilenet_v2", head="light", classes=5).eval().to("cuda")


def test_a_stream_gives_what_single_images_give(model):
    given = list(photographs(100))
    found = dict(predict_stream(model, given, batch_size=4))
    assert sorted(found) == list(range(100))
    for key, pixels in given:
        alone = model.predict(pixels, batch_size=1).labels
        assert found[key].labels.shape == pixels.shape[:2]
        assert (found[key].labels == alone).mean() > 0.99
        assert not torch.from_numpy(found[key].labels).is_pinned()


def test_a_batch_whose_probabilities_are_too_many_at_once(model, monkeypatch):
    given = list(photographs(24))
    expected = dict(predict_stream(model, given, batch_size=8))
    monkeypatch.setattr(predict, "MOST_ON_GPU", 2 * 5 * 40 * 56)  # two images, or some rows
    monkeypatch.setattr(preprocessing, "MOST_PINNED", 40 * 56 * 3)  # larger ones are not pinned
    found = dict(predict_stream(model, given, batch_size=8, pictures=False))
    for key, one in expected.items():
        assert (found[key].labels == one.labels).mean() > 0.999
        assert found[key].image is None


def test_large_images_are_preprocessed_as_on_a_cpu():
    model = scaseg.create_model("mobilenet_v2", head="light", classes=5)
    model.config = replace(model.config, fit=(64, 64))
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 150, 210), np.uint8))
    expected = Preprocessed(model, images).whole()
    assert expected.shape[-2:] == (46, 64)
    found = Preprocessed(model.to("cuda"), images.cuda()).whole()
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-5)


def test_processes_give_what_threads_give(model, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "in").mkdir()
    for key, pixels in photographs(30):
        Image.fromarray(pixels).save(tmp_path / f"in/{key}.png")
    for few in (1, 1000):
        monkeypatch.setattr(pipeline, "FEW", few)
        out = tmp_path / str(few)
        scaseg.predict_folder(tmp_path / "model", tmp_path / "in", out, device="cuda", overlay=True)
    for path in (tmp_path / "1000").glob("*.*"):
        assert path.read_bytes() == (tmp_path / "1" / path.name).read_bytes(), path.name
    for key, pixels in photographs(30):  # its norms folded, its sums in place
        found = np.asarray(Image.open(tmp_path / f"1/{key}.png"))
        assert (found == model.predict(pixels).labels).mean() > 0.95


def test_what_is_computed_comes_before_the_fault_of_the_next(model):
    def given():
        yield from photographs(40)
        raise UserError("41", "is torn", "")

    results = predict_stream(model, given(), batch_size=4)
    found = {next(results)[0] for _ in range(16)}  # of 40: 16 wait for others, 8 are under way
    assert len(found) == 16
    with pytest.raises(UserError, match="41: is torn"):
        list(results)


def test_scores_that_are_no_numbers(model):
    broken = scaseg.create_model("mobilenet_v2", head="light", classes=5).eval().to("cuda")
    with torch.no_grad():
        next(broken.head.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match="its scores of this image are not finite"):
        list(predict_stream(broken, photographs(9), batch_size=4))
