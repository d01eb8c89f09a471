from dataclasses import replace

import scaseg
from scaseg.training.callbacks import KeepBest
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
