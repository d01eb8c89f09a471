"""Networks: backbones, heads, the segmenter, and their weights on disk."""

from scaseg.models.heads import HEADS as HEADS
from scaseg.models.heads import SegmentationHead as SegmentationHead
from scaseg.models.saving import save_pretrained as save_pretrained
from scaseg.models.segmenter import Segmenter as Segmenter
