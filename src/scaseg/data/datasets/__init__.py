"""Datasets, one file each: in their published layout, or generated."""
