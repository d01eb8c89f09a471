"""Processes of a comparison take one training after the other on a GPU."""

import pytest
import torch

from tests.comparison.in_turn import after_another_and_alone

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def test_a_second_training_of_a_process_is_that_of_a_fresh_one(tmp_path):
    (after, alone), (measured, expected) = after_another_and_alone(tmp_path, "cuda")
    assert after["device"] == alone["device"] == torch.cuda.get_device_name()
    for name in ("PPA", "mIoU"):  # sums on a GPU have no fixed order
        assert after[name] == pytest.approx(alone[name], abs=1)
    # what the first has left there would be taken off: cuBLAS keeps 32 MiB
    assert measured["mebibytes"] == pytest.approx(expected["mebibytes"], abs=4)
