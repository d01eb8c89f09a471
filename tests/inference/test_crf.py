"""Labels refined by a dense CRF over the photograph."""

import numpy as np
import pytest
import torch
from PIL import Image

from scaseg import create_model, load_model
from scaseg.errors import UserError
from scaseg.inference.crf import DenseCrf
from scaseg.inference.tta import TestTimeAugmentation, predict_scores
from tests.inference.command import predict, refused


def two_halves(height=24, width=30):
    """A photograph of two colors, noisy, and the probability of the left one: blurred, noisy."""
    torch.manual_seed(0)
    left = (torch.arange(width) < width // 2).expand(height, width)
    image = torch.where(left, 60, 190) + torch.randint(-8, 9, (3, height, width))
    ramp = torch.sigmoid((width / 2 - torch.arange(width) - 4) / 3).expand(height, width)
    first = (ramp + 0.3 * torch.randn(height, width)).clamp(0.05, 0.95)
    return image.to(torch.uint8), torch.stack([first, 1 - first]), left


def test_labels_follow_the_edges_of_the_photograph():
    image, probabilities, left = two_halves()
    before = probabilities.argmax(0) == (~left).long()
    found = DenseCrf(far=10, near_weight=3, weight=10).refine(probabilities, image)
    torch.testing.assert_close(found.sum(0), torch.ones_like(found[0]))
    assert before.float().mean() < 0.9
    assert ((found.argmax(0) == (~left).long()).float().mean()) == 1


def test_the_lattice_gives_what_every_pair_gives():
    image, probabilities, _ = two_halves(20, 24)
    probabilities = torch.cat([probabilities, torch.rand(1, 20, 24)]).softmax(0)
    for crf in (DenseCrf(), DenseCrf(weight=0), DenseCrf(far=5, color=40, weight=2, steps=2)):
        found, exact = (crf.refine(probabilities, image, exact=way) for way in (False, True))
        assert (found - exact).abs().mean() < 0.02, crf
        assert (found.argmax(0) == exact.argmax(0)).float().mean() > 0.97, crf


def test_without_kernels_nothing_changes():
    image, probabilities, _ = two_halves()
    found = DenseCrf(weight=0, near_weight=0).refine(probabilities, image)
    torch.testing.assert_close(found, probabilities)


def test_every_way_to_predict_refines():
    model = create_model("tiny", "average", "pointwise", classes=["a", "b"]).eval()
    image, _, _ = two_halves(40, 48)
    crf, way = DenseCrf(far=10), TestTimeAugmentation(flip=True)
    plain = predict_scores(model, image, way)
    found = predict_scores(model, image, TestTimeAugmentation(flip=True, crf=crf))
    torch.testing.assert_close(found, crf.refine(plain, image))
    assert not torch.allclose(found, plain)
    together = TestTimeAugmentation(flip=True, crf=crf)
    one = model.predict(image, tta=together, scores=True)
    np.testing.assert_allclose(one.scores, found.numpy(), atol=1e-5)
    assert np.array_equal(one.labels, found.argmax(0).numpy())


def test_the_command(tmp_path, photos, model, capsys):
    plain, refined = tmp_path / "plain", tmp_path / "refined"
    predict(photos / "one.jpg", model=model, out=plain)
    settings = "far=10,weight=30,steps=3"
    predict(photos / "one.jpg", "--crf-settings", settings, model=model, out=refined)
    with Image.open(photos / "one.jpg") as photograph, Image.open(refined / "one.png") as labels:
        pixels, found = np.asarray(photograph), np.asarray(labels)
    crf = DenseCrf(far=10, weight=30, steps=3)
    expected = load_model(model).predict(pixels, tta=TestTimeAugmentation(crf=crf))
    assert np.array_equal(found, expected.labels)
    # not mixed with what was made otherwise
    capsys.readouterr()
    error = refused(capsys, photos, "--crf", "--skip-existing", model=model, out=plain)
    assert "this run is with --crf steps=5,near=3,near_weight=1,far=80,color=13,weight=3" in error


def test_too_large_for_the_memory(tmp_path, photos, model, capsys, monkeypatch):
    monkeypatch.setattr("scaseg.system.available_memory", lambda device: 1_500_000)
    error = refused(capsys, photos / "one.jpg", "--crf", model=model, out=tmp_path / "out")
    assert "one.jpg: 41 x 30 pixels take about 1.88 MiB with --crf, and 1.43 MiB are free" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("colour=3", "'colour=3'; give NAME=NUMBER, NAME one of steps, near"),
        ("color=red", "'color=red'; give a number"),
        ("color=0", "color: 0.0; give a number from 0.1"),
        ("steps=2.5", "'steps=2.5'; give a number"),
        ("steps=0", "steps: 0; give a whole number >= 1"),
        ("weight=-1", "weight: -1.0; give a number from 0 to 1000"),
        ("far=nan", "far: nan; give a number from 0.1"),
    ],
)
def test_settings_that_are_none(settings, problem, tmp_path, capsys):
    from scaseg.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["predict", "x.jpg", "--out", str(tmp_path / "out"), "--crf-settings", settings])
    assert stop.value.code == 2
    assert f"--crf-settings: {problem}" in capsys.readouterr().err


def test_bands_have_no_colors():
    with pytest.raises(UserError, match=r"crf: an image of 4 bands, torch.uint8; leave it out"):
        DenseCrf().refine(torch.rand(2, 8, 8), torch.zeros(4, 8, 8, dtype=torch.uint8))
