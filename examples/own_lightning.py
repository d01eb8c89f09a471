"""A Lightning script of one's own with scaseg's module: your data, trainer and callbacks.

scaseg's module brings the loss, both learning rates with their schedule, and the metrics.
python own_lightning.py [FOLDER]
"""

import sys

import numpy as np
import pytorch_lightning as pl
from torch.utils.data import DataLoader

import scaseg
from scaseg.config.run import TrainingConfig
from scaseg.data.loading import EvaluationDataset
from scaseg.data.sample import Sample, as_example, collate
from scaseg.training.module import SegmentationModule

pl.seed_everything(0, verbose=False)
folder = sys.argv[1] if len(sys.argv) > 1 else "my_model"
EPOCHS, CLASSES = 3, ("red", "green", "blue")


class Squares:
    """Your own data: here squares of three colors, 255 where nothing is labelled."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = np.random.default_rng([self.seed, index])
        labels = np.kron(draw.integers(0, 3, (4, 4)), np.ones((8, 8))).astype(np.int32)
        colors = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200]])
        image = (colors[labels] + draw.integers(-40, 40, (32, 32, 3))).astype(np.uint8)
        labels[0] = 255
        return Sample(image, labels, name=f"square {index}")


class Mine(SegmentationModule):
    """Whatever is yours: here another optimizer, and a line an epoch."""

    def on_train_epoch_end(self):
        scores = self.scores.summary() if self.scores else {}
        print(", ".join(f"{name} {value:.1f}" for name, value in scores.items()))


train = DataLoader(
    Squares(32, seed=0),
    batch_size=8,
    shuffle=True,
    collate_fn=lambda s: collate([*map(as_example, s)]),
)
val = DataLoader(EvaluationDataset(Squares(8, seed=1)), batch_size=None)
model = scaseg.create_model("tiny", "sca", "pointwise", classes=CLASSES)
settings = TrainingConfig(epochs=EPOCHS, optimizer="AdamW", lr=0.01, head_lr=0.01)
module = Mine(model, settings)
module.steps = EPOCHS * len(train)  # the schedule ends with them
trainer = pl.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(module, train, val)
model.eval().save_pretrained(folder)
print(f"temperature {module.calibration.fit():.2f}; saved in {folder}")
