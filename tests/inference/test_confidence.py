"""Confidence: calibrated by a temperature, kept beside the labels, and a least one asked for."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.errors import UserError
from tests.inference.command import predict, refused, written
from tests.inference.models import picture, small_model


def test_confidence_is_the_probability_of_the_label():
    model, image = small_model(), picture(40, 56)
    found = model.predict(image, scores=True)
    np.testing.assert_array_equal(found.confidence, found.scores.max(0))
    rows, columns = np.indices(found.labels.shape)
    np.testing.assert_array_equal(found.confidence, found.scores[found.labels, rows, columns])


def test_temperature_softens_scores_and_changes_no_label():
    """The probabilities are those of scores divided by it; also in the mean over scales."""
    model, image = small_model(), picture(40, 56)
    plain = model.predict(image, scores=True)
    model.config = replace(model.config, temperature=2.5)
    soft = model.predict(image, scores=True)
    expected = torch.from_numpy(plain.scores).log().div(2.5).softmax(0)
    np.testing.assert_allclose(soft.scores, expected, atol=1e-6)
    assert soft.confidence.mean() < plain.confidence.mean() - 0.05
    np.testing.assert_array_equal(soft.labels, plain.labels)


def test_pixels_that_are_less_sure_have_no_class(tmp_path):
    model, image = small_model(), picture(40, 56)
    plain = model.predict(image)
    least = float(np.median(plain.confidence))
    found = model.predict(image, min_confidence=least)
    unsure = plain.confidence < least
    assert 0.3 < unsure.mean() < 0.7
    np.testing.assert_array_equal(found.labels, np.where(unsure, 255, plain.labels))
    assert sum(found.areas().values()) == pytest.approx(1 - unsure.mean())
    found.save(tmp_path / "labels.png")  # with few colors Pillow saves few bits a pixel
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "labels.png")), found.labels)
    drawn = np.asarray(found.overlay(opacity=1))
    np.testing.assert_array_equal(drawn[unsure], image[unsure])


@pytest.mark.parametrize(("count", "label"), [(255, 255), (256, 65535), (300, 65535)])
def test_unsure_is_no_class_however_many_there_are(count, label, tmp_path):
    model = small_model(classes=tuple(f"class {index}" for index in range(count)))
    found = model.predict(picture(16, 16), min_confidence=1.0)
    assert (found.labels == label).all()
    assert sum(found.areas().values()) == 0
    found.save(tmp_path / "labels.png")
    assert (np.asarray(Image.open(tmp_path / "labels.png")) == label).all()


@pytest.mark.parametrize("least", [-0.1, 1.1, float("nan")])
def test_a_confidence_that_is_no_probability(least):
    with pytest.raises(UserError, match=r"min_confidence: .*give a number from 0 to 1"):
        small_model().predict(picture(16, 16), min_confidence=least)


def test_the_command_writes_the_map_and_255(model, photos, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--confidence", "--min-confidence", "0.4", "--json"]
    predict(photos, *options, model=model, out=out)
    names = [name for name in written(out) if name.endswith(".confidence.png")]
    assert names
    for name in names:
        stem = name.removesuffix(".confidence.png")
        gray, labels = (np.asarray(Image.open(out / one)) for one in (name, f"{stem}.png"))
        assert gray.shape == labels.shape
        assert gray.dtype == np.uint8
        np.testing.assert_array_equal(labels[gray < 101] == 255, True)  # 0.4 is 102
        np.testing.assert_array_equal(labels[gray > 103] == 255, False)
        facts = json.loads((out / f"{stem}.json").read_text())
        assert facts["unsure"] == pytest.approx((labels == 255).mean())
    # the maps of confidence are no results of other images
    predict(photos, *options, "--overwrite", model=model, out=out)
    predict(photos, *options, "--skip-existing", model=model, out=out)
    said = refused(capsys, photos, "--skip-existing", model=model, out=out)
    assert "made with --min-confidence 0.4, and this run is without --min-confidence" in said


def test_results_of_another_model_can_be_replaced_with_their_confidence(model, photos, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    predict(photos, "--confidence", model=model, out=out)
    before = scaseg.load_model(model)
    before.config = replace(before.config, temperature=3.0)
    before.save_pretrained(other)
    predict(photos, "--confidence", "--overwrite", model=str(other), out=out)


def test_the_command_refuses_what_is_no_probability(model, photos, tmp_path, capsys):
    said = refused(capsys, photos, "--min-confidence", "40", model=model, out=tmp_path / "out")
    assert said == "error: --min-confidence: 40.0; give a number from 0 to 1\n"
    assert not (tmp_path / "out").exists()
