"""Where a block's parameters lie, one after another in one tensor: products may join neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from torch import Tensor


class Matrix(NamedTuple):
    """A matrix (out, in) within the flat parameters."""

    offset: int
    out: int
    width: int

    def of(self, flat: Tensor) -> Tensor:
        """The matrix itself."""
        return flat.as_strided((self.out, self.width), (self.width, 1), self.offset)

    def transposed(self, flat: Tensor) -> Tensor:
        """(in, out)."""
        return flat.as_strided((self.width, self.out), (1, self.width), self.offset)


class Layout(NamedTuple):
    """The parameters one after another: W_d, W_c, the layers' weights, their biases."""

    matrices: tuple[Matrix, ...]
    biases: tuple[int, ...]
    total: int


@lru_cache(maxsize=64)
def _layout(shapes: tuple[tuple[int, int], ...]) -> Layout:
    """Of matrices of these shapes (out, in)."""
    starts = list(accumulate((out * width for out, width in shapes), initial=0))
    matrices = tuple(Matrix(start, *one) for start, one in zip(starts, shapes, strict=False))
    biases = list(accumulate((out for out, _ in shapes[2:]), initial=starts[-1]))
    return Layout(matrices, tuple(biases[:-1]), biases[-1])


def layout_of(weights: Sequence[Tensor]) -> Layout:
    """Of W_d, W_c and the layers' weights, 1x1 kernels or matrices."""
    return _layout(tuple((one.shape[0], one.shape[1]) for one in weights))
