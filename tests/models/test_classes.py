"""A trained model gets other classes: what it knows of them it keeps."""

import json

import pytest
import torch

import scaseg
from scaseg.models.classes import change_classes, shared_classes
from tests.inference.models import small_model


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        (["sky", "tree"], ["sky", "tree"], [0, 1]),
        (["sky", "tree"], ["tree", "sky"], [1, 0]),
        (["sky", "tree"], ["Tree", "car"], [1, None]),
        (["a", "A"], ["A", "a"], [1, 0]),
        (["a", "A"], ["Á", "x"], [None, None]),
        (["a"], ["a", "A"], [0, None]),  # never one row for two classes
    ],
)
def test_classes_are_known_by_their_names(old, new, rows):
    assert shared_classes(old, new) == rows


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(1)
    model = scaseg.create_model("tiny", head="pointwise", classes=["sky", "tree", "road"], hidden=8)
    torch.nn.init.normal_(model.head.score.bias)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def states(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_other_classes_keep_all_but_the_last_layer_and_shared_names_their_row(saved):
    before = states(scaseg.load_model(saved))
    model = scaseg.load_model(saved, classes=["road", "car", "Sky", "bus"])
    after = states(model)
    assert model.classes == ("road", "car", "Sky", "bus")
    assert not model.training
    assert after.keys() == before.keys()
    for name in after:
        if not name.startswith("head.score"):
            assert torch.equal(after[name], before[name]), name
            continue
        assert len(after[name]) == 4
        assert torch.equal(after[name][[0, 2]], before[name][[2, 0]])
        for fresh in after[name][[1, 3]]:
            assert not any(torch.equal(fresh, old) for old in before[name])
    assert model.predict(torch.rand(3, 24, 24)).classes == model.classes
    model.save_pretrained(saved)
    assert scaseg.load_model(saved).classes == model.classes
    record = json.loads((saved / "config.json").read_text())["training"]["started_from"]
    assert record == {"model": str(saved), "classes_kept": ["road", "Sky"]}


def test_the_same_classes_in_another_order_give_the_same_answers(saved):
    image = torch.rand(3, 24, 24)
    first = scaseg.load_model(saved).predict(image, scores=True)
    turned = scaseg.Segmenter.from_pretrained(saved, classes=["road", "sky", "tree"])
    found = turned.predict(image, scores=True)
    assert found.scores == pytest.approx(first.scores[[2, 0, 1]], abs=1e-6)


def test_the_same_classes_change_nothing_and_draw_nothing(saved):
    before = states(scaseg.load_model(saved))
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    after = states(scaseg.load_model(saved, classes=["sky", "tree", "road"]))
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_known_classes_keep_their_colour(saved):
    config = json.loads((saved / "config.json").read_text())
    config["palette"] = [[78, 121, 167], [1, 2, 3], [4, 5, 6]]  # the first: also a default
    (saved / "config.json").write_text(json.dumps(config))
    palette = scaseg.load_model(saved, classes=["car", "road", "sky", "bus"]).config.palette
    assert palette[1:3] == ((4, 5, 6), (78, 121, 167))
    assert len(set(palette)) == 4


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("sky", "classes: 'sky'; give a list of names"),
        (["a", "a"], "classes: 'a' is named twice"),
        ([], "classes: none"),
    ],
)
def test_what_is_no_list_of_classes(saved, classes, message):
    with pytest.raises(ValueError, match=message):
        scaseg.load_model(saved, classes=classes)


def test_a_head_of_ones_own_is_left_alone():
    with pytest.raises(ValueError, match="classes: the head is a Conv2d"):
        change_classes(small_model(), ["other"])


def test_where_it_is_and_what_it_tells_apart(saved):
    model = scaseg.load_model(saved)
    assert model.classes == model.config.classes
    assert model.device == torch.device("cpu")
    assert model.to("meta").device.type == "meta"


def test_a_classifier_within_the_context_gets_the_classes_too(tmp_path):
    model = scaseg.create_model("tiny", "object", "pointwise", classes=["sky", "tree", "road"])
    row = model.context.classifier.weight[2].detach().clone()
    change_classes(model, ["road", "car"])
    assert torch.equal(model.context.classifier.weight[0], row)
    model.save_pretrained(tmp_path)
    image = torch.randn(1, 3, 40, 48)
    again = scaseg.load_model(tmp_path)
    assert torch.equal(again(image), model.eval()(image))
    assert again(image).shape == (1, 2, 40, 48)
