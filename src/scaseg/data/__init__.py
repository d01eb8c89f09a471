"""Data: reading photographs and label maps, transforming them together, batching them."""

from scaseg.data.datasets import FolderDataset as FolderDataset
from scaseg.data.sample import Batch as Batch
from scaseg.data.sample import Example as Example
from scaseg.data.sample import Sample as Sample
from scaseg.data.sample import collate as collate
from scaseg.data.sample import normalise as normalise
