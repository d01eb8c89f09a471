"""Data sets as they lie on people's disks, one file each."""

from scaseg.data.datasets.folder import FolderDataset as FolderDataset
