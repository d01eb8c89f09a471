"""Data sets, one file each: as they lie on people's disks, or generated."""

from scaseg.data.datasets.coco_stuff import CocoStuff10k as CocoStuff10k
from scaseg.data.datasets.coco_stuff import CocoStuff164k as CocoStuff164k
from scaseg.data.datasets.context_scenes import ContextScenes as ContextScenes
from scaseg.data.datasets.context_scenes import ContextScenesGlobal as ContextScenesGlobal
from scaseg.data.datasets.context_scenes import ContextScenesSelective as ContextScenesSelective
from scaseg.data.datasets.folder import FolderDataset as FolderDataset
from scaseg.data.datasets.labelled import LabelledImages as LabelledImages
from scaseg.data.datasets.paired import Pair as Pair
from scaseg.data.datasets.paired import PairedDataset as PairedDataset
from scaseg.data.datasets.pascal_context import PascalContext as PascalContext
from scaseg.data.datasets.sift_flow import SiftFlow as SiftFlow
from scaseg.data.datasets.sift_flow import SiftFlowGeo as SiftFlowGeo
