"""Training and evaluation, in Lightning's loop."""

from scaseg.training.evaluation import evaluate as evaluate
from scaseg.training.run import train as train
