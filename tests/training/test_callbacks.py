from dataclasses import replace

import pytest
import torch

import scaseg
from scaseg.training.callbacks import KeepBest, running_mean
from scaseg.training.folder import BEST


def test_the_best_that_is_saved_is_the_one_that_counts(tmp_path):
    """A run died after saving the best of epoch 2, but before saving its state of epoch 2."""
    model = scaseg.create_model("mobilenet_v2", "none", "compact", classes=2)
    model.config = replace(model.config, training={"best": {"epoch": 2, "mIoU": 0.5}})
    scaseg.save_pretrained(model, tmp_path / BEST)
    keep = KeepBest(tmp_path, None)
    keep.on_train_start(None, None)
    assert keep.epoch == 0  # a fresh run does not believe what another has left
    keep.load_state_dict({"best": 0.4, "epoch": 1})
    keep.on_train_start(None, None)
    assert keep.state_dict() == {"best": 0.5, "epoch": 2}


def test_a_running_mean_lets_go_of_the_first_weights():
    """By hand: shares kept are 2/11, 3/12, ... up to the decay; a plain mean would keep 0.99^9."""
    mean, value = torch.zeros(()), torch.ones(())
    for count in range(1, 10):
        mean = running_mean(mean, value, torch.tensor(count), decay=0.99)
    assert mean > 0.999
    late = running_mean(torch.zeros(()), value, torch.tensor(10**6), decay=0.99)
    assert float(late) == pytest.approx(0.01)
