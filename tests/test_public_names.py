"""The public API is a list: a name that disappears is noticed here first."""

import pytest

import scaseg


def test_the_list():
    assert set(scaseg.__all__) == {
        "SelectiveContext",
        "ContextAggregation",
        "DependencyPredictor",
        "selective_context",
        "aggregate",
        "choose_backend",
        "create_model",
        "add_context",
        "load_model",
        "Segmenter",
        "Segmentation",
        "train",
        "evaluate",
        "explain",
        "export_model",
        "predict",
        "predict_folder",
        "compare",
        "UserError",
        "WorkError",
    }
    assert set(scaseg.__all__) <= set(dir(scaseg))
    assert len(dir(scaseg)) == len(set(dir(scaseg)) - {"Any", "TYPE_CHECKING", "import_module"})


@pytest.mark.parametrize("name", scaseg.__all__)
def test_each_can_be_had_and_is_described(name):
    assert getattr(scaseg, name).__doc__


def test_subpackages_come_along():
    assert scaseg.ops.__name__ == "scaseg.ops"
    assert scaseg.explanation.__name__ == "scaseg.explanation"


def test_what_is_not_there_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        scaseg.nothing  # noqa: B018
