"""Data sets as they lie on people's disks, one file each."""

from scaseg.data.datasets.folder import FolderDataset as FolderDataset
from scaseg.data.datasets.paired import Pair as Pair
from scaseg.data.datasets.paired import PairedDataset as PairedDataset
