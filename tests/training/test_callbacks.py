"""The best checkpoint, and the averaged weights that it may hold."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

import scaseg
from scaseg.config.run import TrainingConfig
from scaseg.io.model_folder import BEST
from scaseg.training.callbacks import EMA, BestCheckpoint, ema_update
from scaseg.training.module import SegmentationModule


def test_the_best_that_is_saved_is_the_one_that_counts(tmp_path):
    """A run died after saving the best of epoch 2, but before saving its state of epoch 2."""
    model = scaseg.create_model("mobilenet_v2", "none", "compact", classes=2)
    model.config = replace(model.config, training={"best": {"epoch": 2, "mIoU": 0.5}})
    model.save_pretrained(tmp_path / BEST)
    keep = BestCheckpoint(tmp_path, None)
    keep.on_train_start(None, None)
    assert keep.epoch == 0  # a fresh run does not believe what another has left
    keep.load_state_dict({"best": 0.4, "epoch": 1})
    keep.on_train_start(None, None)
    assert keep.state_dict() == {"best": 0.5, "epoch": 2}


def test_a_running_mean_lets_go_of_the_first_weights():
    """By hand: shares kept are 2/11, 3/12, ... up to the decay; a plain mean would keep 0.99^9."""
    means, values = [torch.zeros(()), torch.zeros(2)], [torch.ones(()), torch.tensor([1.0, -2.0])]
    ema_update(means, values, 1, decay=0.99)
    assert float(means[0]) == pytest.approx(9 / 11)
    for count in range(2, 10):
        ema_update(means, values, count, decay=0.99)
    assert means[0] > 0.999
    assert torch.allclose(means[1], values[1] * means[0])
    late = [torch.zeros(())]
    ema_update(late, values[:1], 10**6, decay=0.99)
    assert float(late[0]) == pytest.approx(0.01)


def test_statistics_of_norms_are_averaged_with_the_weights():
    model = scaseg.create_model("tiny", "none", "pointwise", classes=2)
    module, ema = SegmentationModule(model, TrainingConfig()), EMA(decay=0.5)
    ema._average_model = AveragedModel(module)
    ema.on_train_start(None, module)
    for step, value in enumerate((1.0, 3.0), start=1):
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data.fill_(value)
        ema.on_train_batch_end(SimpleNamespace(global_step=step))
    kept = 2 / 11  # of the first, as above
    for name, tensor in ema.averaged_model().state_dict().items():
        expected = 3.0 if name.endswith("tracked") else 3 - 2 * kept
        torch.testing.assert_close(tensor.double(), torch.full_like(tensor, expected).double())


def test_counters_are_not_averaged():
    counter = [torch.tensor(3)]
    ema_update(counter, [torch.tensor(8)], 4, decay=0.99)
    assert counter[0] == 8
