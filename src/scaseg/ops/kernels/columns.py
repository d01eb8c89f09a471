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
    """Some lines of a convolution's result, of stride 1, and some rows of its kernel's taps.

    lines of `width` neurons; the first row of taps sees, for the first line, line `top` of the map.
    """

    lines: int
    width: int
    top: int
    rows: int
    taps: int  # of a row
    beside: int  # padding
    dilation: tuple[int, int]


@lru_cache(maxsize=256)
def _constants(taps: int, width: int, features: int) -> dict[str, Any]:
    block = {"BLOCK": ROWS, "BLOCK_C": features_of_a_tile(features, 512)}
    return {"TAPS": taps, "KW": width} | block


def _launch(kernel: Any, out: Tensor, source: Tensor, x: Tensor, window: Window) -> None:
    """out: one of x and the columns."""
    height, batch, width, features = x.shape
    taps = window.rows * window.taps
    count = window.lines * batch * window.width if out is not x else height * batch * width
    constants = _constants(taps, window.taps, features)
    launch(
        kernel,
        (-(-count // ROWS), taps if out is not x else 1, -(-features // constants["BLOCK_C"])),
        (out, source),
        (features,),
        (height, batch, width, window.width, count, window.top, window.beside, *window.dilation),
        constants,
        dtypes=(source.dtype,),
    )


def gather(x: Tensor, window: Window) -> Tensor:
    """x (H, B, W, C) -> (lines * B * width, rows * taps * C)."""
    count, taps = window.lines * x.shape[1] * window.width, window.rows * window.taps
    columns = torch.empty((count, taps * x.shape[3]), dtype=x.dtype, device=x.device)
    _launch(device_columns.gather_taps, columns, x, x, window)
    return columns


def add_up(columns: Tensor, x: Tensor, window: Window) -> None:
    """Add to the lines x (lines, B, W, C), float32, that one row of taps sees, what it saw."""
    _launch(device_columns.add_taps, x, columns, x, window)
