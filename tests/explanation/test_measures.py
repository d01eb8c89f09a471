import numpy as np
import pytest
import torch
from torch import nn

from scaseg.explanation.features import extract_features
from scaseg.explanation.occlusion import occluded, occlusion, strongest_sources
from scaseg.explanation.selectivity import rank_correlation, selectivity
from scaseg.models.backbones.base import Backbone
from tests.explanation.planted import Planted, photograph, small_model

IMAGES = [photograph(64, 96, seed) for seed in range(2)]


def loud(model, factor=40.0):
    """Weights so large that maps are far from even."""
    for name, parameter in model.context.named_parameters():
        if "score.weight" in name or "query" in name or "key" in name:
            parameter.data.mul_(factor)
    return model


@pytest.mark.parametrize("activation", ["sigmoid", "exp", "softplus"])
def test_static_predictors_have_one_order(activation):
    found = selectivity(loud(small_model(activation=activation)), IMAGES)
    assert found.rank_correlation.mean == pytest.approx(1, abs=1e-3)
    assert found.entropy.mean < 0.999
    assert found.images == 2


def test_dynamic_ones_have_many():
    assert selectivity(loud(small_model("dot")), IMAGES).rank_correlation.mean < 0.9
    several = loud(small_model(pair_channels=8), 10.0)
    assert selectivity(several, IMAGES).rank_correlation.mean < 0.99


def test_the_average_is_even_and_the_same_for_all():
    found = selectivity(small_model("average"), IMAGES)
    assert found.entropy.mean == pytest.approx(1)
    assert found.rank_correlation.mean == 1
    assert found.difference.mean == pytest.approx(0, abs=1e-6)
    if found.same_class.mean is not None:
        assert found.same_class.mean == pytest.approx(found.same_class_if_even.mean, rel=1e-4)


def test_a_single_source_has_no_entropy():
    model = small_model("average")
    model.context = Planted(model, 2, 3, strength=1e9)
    assert selectivity(model, IMAGES[:1]).entropy.mean < 0.05


def test_maps_that_follow_classes_are_told():
    """Coefficients 1 within a class and 0 across: all of each map lies on its own class."""
    model = small_model("average")
    classes = torch.arange(96) % 3

    class SameClass(type(model.context)):
        def coefficient_rows(self, x, source, targets, source_mask):
            rows = (classes[targets][:, None] == classes).float()[None]
            rows[0, torch.arange(len(targets)), targets] = 0
            return rows

    model.context = SameClass(model.context.in_channels)
    model.head = nn.Identity()
    one_hot = nn.functional.one_hot(classes).T.reshape(1, 3, 8, 12).float()
    model.context.forward = lambda features: one_hot
    found = selectivity(model, IMAGES)
    assert found.same_class.mean == pytest.approx(1)
    assert found.same_class_if_even.mean == pytest.approx(31 / 95)
    assert "1.0000" in found.table()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 99], 1),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1),
        ([1, 1, 2, 2], [1, 1, 2, 2], 1),
        ([1, 1, 2, 2], [1, 2, 3, 4], 0.8944),  # scipy.stats.spearmanr says so
        ([1, 1, 1], [1, 1, 1], 1),
        ([1, 1, 1], [1, 2, 3], 0),
    ],
)
def test_rank_correlation(one, other, expected):
    found = rank_correlation(np.array(one, float), np.array(other, float))
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("context", ["sca", "dot", "average"])
def test_taking_sources_out_is_what_the_coefficients_say(context):
    model = loud(small_model(context), 4.0)
    seen = extract_features(model, IMAGES[0])
    features = seen.features
    kept = torch.rand(2, 96) > 0.4
    with torch.no_grad():
        found = occluded(seen, kept)
        everything = model.context.coefficients(features)
        for index in range(2):
            masked = everything * kept[index]
            if context != "dot":  # rows whose own entry is left out
                masked = masked.masked_fill(torch.eye(96, dtype=torch.bool), 0)
            changed = model.context(features, coefficients=masked)
            expected = model.head(torch.relu(changed)).softmax(1).flatten(2)[0]
            torch.testing.assert_close(found[index], expected, rtol=1e-3, atol=1e-4)


class OneBrightNeuron(Backbone):
    """Features that are 0 but for one neuron: what it says, only context can tell the others."""

    stride, offset = 8, 0.0

    def forward(self, images, real=None):
        features = torch.zeros(len(images), 64, 8, 12)
        features[:, 0, 3, 5] = 5
        return features, real


def test_a_planted_source_is_what_decisions_hang_on():
    model = small_model("average", classes=2)
    model.backbone = OneBrightNeuron()
    model.context = Planted(model, 3, 5, strength=1e4)
    model.context.context.weight.data = torch.eye(64)[:, :, None, None]
    model.head = nn.Conv2d(64, 2, 1)
    model.head.weight.data.zero_()[0, 0] = 1
    model.head.bias.data.zero_()
    found = occlusion(model, IMAGES, decisions=6, repeats=2)
    assert found.decisions == 12
    assert found.removed.mean == pytest.approx(1 / 95)
    # with the source a score of 5 against 0, without it 0 against 0
    assert found.pointed.mean == pytest.approx(1 / (1 + np.exp(-5)) - 0.5, abs=0.01)
    assert abs(found.random.mean) < 0.1
    assert found.difference.mean == pytest.approx(found.pointed.mean - found.random.mean)
    assert found.difference.error is not None


def test_even_maps_point_nowhere():
    found = occlusion(small_model("average"), IMAGES, decisions=8, repeats=4)
    assert found.removed.mean == pytest.approx(0.25, abs=0.01)
    assert abs(found.difference.mean) < 3 * found.difference.error + 1e-3


def test_the_strongest_sources():
    row = torch.tensor([0.5, 0.1, 0.2, 0.15, 0.05])
    generator = torch.Generator().manual_seed(0)
    assert strongest_sources(row, 4, 0.5, generator).tolist() == [0]
    assert strongest_sources(row, 4, 0.7, generator).tolist() == [0, 2]
    assert strongest_sources(row, 0, 0.3, generator).tolist() == [2]  # never itself
    assert len(strongest_sources(row, 4, 0.999, generator)) == 3  # one stays
    even = {strongest_sources(torch.ones(50), 0, 0.02, generator).item() for _ in range(20)}
    assert len(even) > 5  # ties: anywhere


@pytest.mark.parametrize("measure", [selectivity, occlusion])
def test_what_cannot_be_measured(measure):
    with pytest.raises(ValueError, match=r"images: none"):
        measure(small_model(), [])
    with pytest.raises(ValueError, match=r"context is 'none'"):
        measure(small_model("none"), IMAGES)


def test_the_model_is_left_as_it_was():
    model = small_model("dot").train()
    occlusion(model, IMAGES[:1], decisions=2, repeats=1)
    selectivity(model, IMAGES[:1], neurons=4)
    assert all(module.training for module in model.modules())


def test_the_same_numbers_every_time():
    model = loud(small_model("dot"))
    assert selectivity(model, IMAGES) == selectivity(model, IMAGES)
    assert occlusion(model, IMAGES, decisions=2) == occlusion(model, IMAGES, decisions=2)
