"""Data sets as they lie on people's disks, one file each."""

from scaseg.data.datasets.coco_stuff import CocoStuff10k as CocoStuff10k
from scaseg.data.datasets.coco_stuff import CocoStuff164k as CocoStuff164k
from scaseg.data.datasets.folder import FolderDataset as FolderDataset
from scaseg.data.datasets.paired import Pair as Pair
from scaseg.data.datasets.paired import PairedDataset as PairedDataset
from scaseg.data.datasets.pascal_context import PascalContext as PascalContext
from scaseg.data.datasets.sift_flow import SiftFlow as SiftFlow
from scaseg.data.datasets.sift_flow import SiftFlowGeo as SiftFlowGeo
