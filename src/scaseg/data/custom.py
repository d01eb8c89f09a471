"""Transforms of the user's own: albumentations, or any callable, given or named by import path."""

from __future__ import annotations

import inspect
import random as python_random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from scaseg.data.sample import Sample
from scaseg.errors import UserError, one_line
from scaseg.registry import load_path

KEY = "augment.transform"


@dataclass(frozen=True)
class Custom:
    """Wrap a callable f(image=..., mask=...) -> {"image": ..., "mask": ...}.

    This is albumentations' convention, whose transforms fit as they are. image (H, W, C) is uint8,
    or float32 for bands of other types, and comes back as such: it is normalized later. mask (H, W)
    is uint8 (uint16 where there are more classes), 255 where unlabelled.

    For each (seed, epoch, index) the global generators of Python, NumPy and torch are seeded, and
    so is the transform itself if it has `set_random_seed`, as those of albumentations 2 have; what
    it draws is reproducible. Another generator of its own is not seeded.
    """

    function: Callable[..., Any]

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        seed = int(random.integers(2**32))
        kept = python_random.getstate(), np.random.get_state(), torch.get_rng_state()
        labels = sample.labels.astype(np.uint8 if sample.labels.max() <= 255 else np.uint16)
        try:
            python_random.seed(seed)
            np.random.seed(seed)
            torch.default_generator.manual_seed(seed)
            if hasattr(self.function, "set_random_seed"):
                self.function.set_random_seed(seed)
            result = self.function(image=np.ascontiguousarray(sample.image), mask=labels)
        except Exception as error:  # whatever the user's code raises
            problem = f"{KEY} raised {type(error).__name__}: {one_line(str(error))}"
            raise UserError(sample.name, problem, "mend it") from error
        finally:
            python_random.setstate(kept[0])
            np.random.set_state(kept[1])
            torch.set_rng_state(kept[2])
        return self._read(sample, result)

    def _read(self, sample: Sample, result: Any) -> Sample:
        fits = 'give a mapping with "image" and "mask", as albumentations does'
        try:
            image, labels = result["image"], result["mask"]
        except (TypeError, KeyError, IndexError) as error:
            problem = f"{KEY} returned a {type(result).__name__} without both"
            raise UserError(sample.name, problem, fits) from error
        dtype, channels = sample.image.dtype, sample.image.shape[2]
        is_image = isinstance(image, np.ndarray) and image.dtype == dtype and image.ndim == 3
        if not is_image or image.shape[2] != channels:
            came = getattr(image, "dtype", type(image).__name__)
            problem = f"{KEY} made an image of {came}, {getattr(image, 'shape', '')}"
            remedy = f"return {dtype} (H, W, {channels}): it is normalized later"
            raise UserError(sample.name, problem, remedy)
        if not isinstance(labels, np.ndarray) or not np.issubdtype(labels.dtype, np.integer):
            came = getattr(labels, "dtype", type(labels).__name__)
            raise UserError(sample.name, f"{KEY} made labels of {came}", "return whole numbers")
        if image.shape[:2] != labels.shape:
            what = f"the transform made an image of {image.shape[:2]} and labels of {labels.shape}"
            raise UserError(sample.name, what, "both must be transformed alike")
        return replace(sample, image=image, labels=labels.astype(np.int32), size=None)


def load_transform(path: str) -> Callable[..., Any]:
    """Import what "package.module:name" names: the transform itself, or a function that makes it.

    A function (or class) without parameters is called, and returns the transform. See `load_path`.
    """
    found = load_path(KEY, path)
    try:
        is_maker = inspect.isfunction(found) or inspect.isclass(found)
        if is_maker and not inspect.signature(found).parameters:
            found = found()
    except Exception as error:  # whatever the user's code raises
        detail = one_line(f"{type(error).__name__}: {error}")
        raise UserError(KEY, f"{path} cannot be imported ({detail})", "check the path") from error
    if not callable(found):
        raise UserError(KEY, f"{path} is a {type(found).__name__}", "give something to call")
    return found
