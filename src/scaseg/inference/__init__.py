"""From photographs to scores: at any size, at several scales, in windows."""

from scaseg.inference.scoring import TestTime as TestTime
from scaseg.inference.scoring import score as score
