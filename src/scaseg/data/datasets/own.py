"""A Dataset of the user's own: anything with len() and [index] that gives images and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.config.run import DataConfig
from scaseg.data.datasets.base import SegmentationDataset, require_same_size
from scaseg.data.decode.image import rgb
from scaseg.data.sample import IGNORE, Sample, check_unit_range
from scaseg.data.splits import hold_out
from scaseg.errors import UserError, located, one_line

# settings of files, which a Dataset has read already
UNUSED = ("name", "root", "folds", "label_map", "reduce_zero_label", "max_pixels")
CHECKED = 16  # samples that are read before training where data.check is quick


class OwnDataset(SegmentationDataset):
    """A map-style Dataset of torch, or a sequence, of (image, labels) or `Sample`.

    image: a PIL image, an array (H, W, C) or (H, W), a tensor (C, H, W); uint8, or floats from 0 to
    1 of red, green and blue, which are rounded to 256 steps. With other numbers of channels, or
    `bands`, pixels are taken as they are. labels: (H, W) whole numbers, 0, 1, ... and ignore_index.
    called: what it is called in messages.
    """

    root = None
    threads = 1  # it may hold a file or a database that is not made for several

    def __init__(
        self,
        data: Any,
        *,
        classes: Sequence[str] | None = None,
        bands: int | None = None,
        dtype: str | None = None,
        ignore_index: int = IGNORE,
        called: str = "data",
    ) -> None:
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            remedy = "give a Dataset with len(data) and data[index], or a folder"
            raise UserError(called, f"a {type(data).__name__}", remedy)
        self.data, self.called, self.ignore_index = data, called, ignore_index
        self.bands, self.dtype = bands, dtype
        self.indices = list(range(len(data)))
        if not self.indices:
            raise UserError(called, "is empty", "give at least one image")
        names = classes if classes is not None else getattr(data, "classes", None)
        self.classes = None if names is None else tuple(map(str, names))
        if bands is None:
            first = self._image(self._item(0), self.name(0), raw=True)
            if first.shape[2] != 3:
                self.bands = first.shape[2]
        if self.bands is not None and dtype is None:
            self.dtype = self._image(self._item(0), self.name(0), raw=True).dtype.name

    @classmethod
    def splits(cls, root: Any) -> tuple[str, ...]:
        return ()

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return f"{self.called}[{self.indices[index]}]"

    def subset(self, indices: Iterable[int]) -> Self:
        part = copy(self)
        part.indices = [self.indices[index] for index in indices]
        return part

    def size(self, index: int) -> tuple[int, int]:
        height, width = self[index].labels.shape
        return height, width

    def fingerprint(self, index: int) -> str:
        problem = "disk, but a Dataset has no files whose changes would show"
        raise UserError("data.cache", problem, "use ram or none")

    def __getitem__(self, index: int) -> Sample:
        place, item = self.name(index), self._item(index)
        image, labels = self._image(item, place), self._labels(item, place)
        require_same_size(f"{place}: labels", labels.shape, image.shape[:2])
        return Sample(image, labels, place)

    def _item(self, index: int) -> tuple[Any, Any]:
        place = self.name(index)
        try:
            item = self.data[self.indices[index]]
        except Exception as error:  # whatever the user's code raises
            detail = one_line(f"{type(error).__name__}: {error}")
            raise UserError(place, f"raised {detail}", "mend its __getitem__") from error
        if isinstance(item, Sample):
            return item.image, item.labels
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            came = f"{len(item)} values" if isinstance(item, (tuple, list)) else type(item).__name__
            raise UserError(place, came, "give (image, labels)")
        return item[0], item[1]

    def _image(self, item: tuple[Any, Any], place: str, *, raw: bool = False) -> NDArray[Any]:
        """Read an image (H, W, C) as the network is to see it; raw: before that is known."""
        image = item[0]
        if isinstance(image, Image.Image):
            image = rgb(image) if self.bands is None else np.asarray(image)
        elif isinstance(image, Tensor):
            image = image.detach().cpu().numpy()
            image = np.moveaxis(image, 0, 2) if image.ndim == 3 else image
        if isinstance(image, np.ndarray) and image.ndim == 2:
            image = np.repeat(image[:, :, None], 3 if self.bands is None else 1, axis=2)
        if not isinstance(image, np.ndarray) or image.ndim != 3 or not image.size:
            came = f"shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            fits = "give a PIL image, an array (H, W, C) or a tensor (C, H, W)"
            raise UserError(place, f"image: {came}", fits)
        if raw:
            return image
        channels = self.bands or 3
        dtype = self.dtype or "uint8"
        if self.bands is None and np.issubdtype(image.dtype, np.floating):
            with located(place):
                check_unit_range(image)
            image = (image.clip(0, 1) * 255).round().astype(np.uint8)
        if image.shape[2] != channels or image.dtype != dtype:
            problem = f"image: {image.shape[2]} channels of {image.dtype}"
            raise UserError(place, problem, f"give {channels} of {dtype}, as the others")
        if dtype == "uint8":
            return np.require(image, requirements="W")  # torch warns of np.asarray(photograph)
        image = image.astype(np.float32)
        if not np.isfinite(image).all():
            raise UserError(place, "image: values that are not finite", "replace them")
        return image

    def _labels(self, item: tuple[Any, Any], place: str) -> NDArray[np.int32]:
        labels = item[1]
        if isinstance(labels, Tensor):
            labels = labels.detach().cpu().numpy()
        labels = np.asarray(labels)
        if labels.ndim == 3 and 1 in (labels.shape[0], labels.shape[2]):
            labels = labels.squeeze(0 if labels.shape[0] == 1 else 2)
        if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
            problem = f"labels: {labels.dtype} of shape {labels.shape}"
            raise UserError(place, problem, "give whole numbers (H, W)")
        labels = labels.astype(np.int32)
        labels[labels == self.ignore_index] = IGNORE
        most = IGNORE if self.classes is None else len(self.classes)
        wrong = (labels != IGNORE) & ((labels < 0) | (labels >= most))
        if wrong.any():
            problem = f"labels: {labels[wrong][0]}"
            remedy = f"give 0 to {most - 1}, or {self.ignore_index} for unlabelled"
            raise UserError(place, problem, remedy)
        return labels


def open_own(
    data: Any, val: Any, config: DataConfig
) -> tuple[SegmentationDataset, SegmentationDataset | None, str, DataConfig]:
    """Take datasets for training and validation, where val is None by holding some out.

    Returns the config with the bands that were found, too. UserError: settings that mean nothing
    for them, or samples that are none.
    """
    for key in UNUSED:
        if (value := getattr(config, key)) != getattr(DataConfig(), key):
            raise UserError(f"data.{key}", f"{value!r}, but the data are given", "leave it out")
    if config.cache == "disk":
        raise UserError("data.cache", "disk, but the data are given", "use ram or none")
    train = _taken(data, config, "data")
    config = replace(config, bands=train.bands)
    if config.limit is not None:
        train = train.subset(range(min(config.limit, len(train))))
    if val is not None:
        val = _taken(val, replace(config, classes=train.classes or config.classes), "val")
        val.dtype = train.dtype
        return train, val, f"{len(val)} images to validate on", config
    return *hold_out(train, config), config


def _taken(data: Any, config: DataConfig, called: str) -> SegmentationDataset:
    if isinstance(data, SegmentationDataset):
        data = data.subset(range(len(data)))
        data.classes = config.classes or data.classes
        return data
    settings = {key: getattr(config, key) for key in ("classes", "bands", "ignore_index")}
    return OwnDataset(data, called=called, **settings)
