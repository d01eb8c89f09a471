"""What a comparison measures of each model."""

import pytest

from scaseg import create_model
from scaseg.comparison.worker import measure_maps
from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from tests.comparison.in_turn import after_another_and_alone


@pytest.mark.parametrize(("context", "measured"), [("none", 0), ("psp", 0), ("ccnet", 1)])
def test_maps_are_measured_where_there_are_some(context, measured):
    data = ContextScenesGlobal("val")
    data.scenes = data.scenes[:2]
    model = create_model("tiny", context, "pointwise", classes=data.classes).eval()
    row = measure_maps(model, data)
    assert (row["entropy"] is not None) == bool(measured)
    assert measured or not any(row.values())


def test_a_second_job_of_a_process_is_that_of_a_fresh_one(tmp_path):
    """Nothing of a training stays behind that another would notice: to the bit."""
    (after, alone), _ = after_another_and_alone(tmp_path, "cpu")
    assert after == alone
