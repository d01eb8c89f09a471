"""What the taps of a kernel see of a map, side by side, and back: convolutions become products."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaseg.ops.kernels import device_columns
from scaseg.ops.kernels.launch import launch
from scaseg.ops.kernels.tiles import features_of_a_tile

ROWS = 8  # neurons of a program


class Window(NamedTuple):
    """A convolution of stride 1: a kernel, and of its taps, counted row by row, which."""

    kernel: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    first: int
    taps: int


@lru_cache(maxsize=256)
def _constants(taps: int, width: int, features: int) -> dict[str, Any]:
    block = {"BLOCK": ROWS, "BLOCK_C": features_of_a_tile(features, 512)}
    return {"TAPS": taps, "KW": width} | block


def _launch(kernel: Any, out: Tensor, source: Tensor, x: Tensor, size: Any, window: Window) -> None:
    """size: height and width of the convolution's result; out: one of x and the columns."""
    _, height, width, features = x.shape
    count = len(x) * (size[0] * size[1] if out is not x else height * width)
    constants = _constants(window.taps, window.kernel[1], features)
    programs = window.taps if out is not x else 1
    launch(
        kernel,
        (-(-count // ROWS), programs, -(-features // constants["BLOCK_C"])),
        (out, source),
        (features,),
        (height, width, *size, count, window.first, *window.padding, *window.dilation),
        constants,
        dtypes=(x.dtype,),
    )


def gather(x: Tensor, size: tuple[int, int], window: Window) -> Tensor:
    """x (B, H, W, C) -> (B * H' * W', taps * C) for a result of the given size (H', W')."""
    count = len(x) * size[0] * size[1]
    columns = torch.empty((count, window.taps * x.shape[3]), dtype=x.dtype, device=x.device)
    _launch(device_columns.gather_taps, columns, x, x, size, window)
    return columns


def add_up(columns: Tensor, x: Tensor, size: tuple[int, int], window: Window) -> None:
    """Write into x (B, H, W, C) the sums, in float32, of what `gather` would take from each."""
    _launch(device_columns.add_taps, x, columns, x, size, window)
