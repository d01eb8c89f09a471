"""From photographs to scores and segmentations: at any size, at several scales, in windows."""

from scaseg.inference.photograph import Photograph as Photograph
from scaseg.inference.prediction import predict as predict
from scaseg.inference.prediction import segment as segment
from scaseg.inference.scoring import TestTime as TestTime
from scaseg.inference.scoring import score as score
from scaseg.inference.segmentation import Segmentation as Segmentation
