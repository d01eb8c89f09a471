"""Write any dataset as shards: tar files in WebDataset's form, and an index, for ShardDataset."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.datasets.shards import INDEX
from scaseg.data.sample import Sample
from scaseg.data.validation.samples import LabelStatistics, sum_pixels
from scaseg.errors import UserError
from scaseg.io.atomic import whole_file, write_json
from scaseg.io.lock import LOCK
from scaseg.progress import Progress


def write_shards(
    parts: Mapping[str | None, SegmentationDataset],
    destination: Path,
    samples: int,
    *,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write the splits of a dataset, so many samples a shard; return the number of each split.

    Photographs are copied as they are, labels written as PNGs of class indices, 255 unlabelled.
    The index comes last: a folder with one is complete. UserError: a folder that is not empty, or
    a sample that cannot be read. The caller has locked the folder.
    """
    if any(path.name != LOCK for path in destination.iterdir()):
        raise UserError(destination, "is not empty", "give a new folder")
    classes = next(iter(parts.values())).classes
    total, done = sum(map(len, parts.values())), 0
    if not total:
        raise UserError("SRC", "has no sample", "give a dataset")
    for problem in (problem for data in parts.values() for problem in data.problems):
        raise problem
    splits: dict[str, list[dict[str, Any]]] = {}
    for split, data in parts.items():
        for number, start in enumerate(range(0, len(data), samples)):
            name = f"{split or 'all'}-{number:06}.tar"
            rows = range(start, min(start + samples, len(data)))
            statistics = []
            with whole_file(destination / name) as partial, tarfile.open(partial, "w") as tar:
                for row in rows:
                    sample = data[row]  # with all checks: sizes, classes, torn files
                    _add(tar, f"{row:06}_{data.name(row)}", data, row, sample)
                    statistics.append(LabelStatistics.of(sample.labels))
                    done += 1
                    if progress:
                        progress(done, total)
            entry: dict[str, Any] = {"name": name, "samples": len(rows)}
            if classes is not None:
                entry["pixels"] = sum_pixels(statistics, classes)
            splits.setdefault(split or "", []).append(entry)
    write_json(destination / INDEX, {"classes": classes, "splits": splits})
    return {split or "all": len(data) for split, data in parts.items()}


def _add(
    tar: tarfile.TarFile, name: str, data: SegmentationDataset, row: int, sample: Sample
) -> None:
    """Add the files of a sample; its name has no dot and no folder, which would divide it."""
    key = re.sub(r"[^\w-]", "_", name)
    if isinstance(data, PairedDataset):
        source = data.pairs[row].image
        image, ending = data.read_photograph(source), source.suffix.lower()
    elif sample.image.shape[2] == 3 and sample.image.dtype == np.uint8:
        image, ending = _png(sample.image), ".png"
    else:
        buffer = io.BytesIO()
        np.save(buffer, sample.image)
        image, ending = buffer.getvalue(), ".npy"
    wide = np.uint8 if sample.labels.max() <= 255 else np.uint16
    for field, content in (
        (f"image{ending}", image),
        ("labels.png", _png(sample.labels.astype(wide))),
    ):
        entry = tarfile.TarInfo(f"{key}.{field}")  # no time, no owner: the same data, the same file
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()
