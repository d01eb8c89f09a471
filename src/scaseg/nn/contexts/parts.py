"""What several contexts are made of: layers, softmaxes without padding, places on a map."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.nn.context import Context, Mask, Source
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import reciprocal


def convolution(in_channels: int, out_channels: int, rate: int | None = None) -> nn.Conv2d:
    """1x1, or 3x3 with a dilation rate, as large a map out as in; made for the ReLU behind it."""
    size, rate, padding = (1, 1, 0) if rate is None else (3, rate, rate)
    layer = nn.Conv2d(in_channels, out_channels, size, padding=padding, dilation=rate)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def query_and_key(in_channels: int, key_channels: int) -> tuple[nn.Conv2d, nn.Conv2d]:
    """Two 1x1 convolutions whose products are scores.

    PyTorch's initialisation: scores well under 1, so that training starts near the average. A bias
    of the key would add the same to all scores of a row, and cancel.
    """
    check_whole_number("key_channels", key_channels, 1)
    query = nn.Conv2d(in_channels, key_channels, kernel_size=1)
    return query, nn.Conv2d(in_channels, key_channels, kernel_size=1, bias=False)


def neurons(x: Tensor) -> Tensor:
    """The neurons of a map in float32 at least: (B, C, H, W) -> (B, n, C)."""
    return x.flatten(2).transpose(1, 2).to(torch.promote_types(x.dtype, torch.float32))


def counted(x: Tensor, source_mask: Mask) -> Tensor:
    """(B, source, R) with 0 for sources that do not count; not a product: 0 * NaN is NaN."""
    return x if source_mask is None else x.masked_fill(~source_mask.unsqueeze(-1), 0)


def counted_map(x: Tensor, source_mask: Mask) -> Tensor:
    """The same for a map (B, C, H, W): 0 is what a convolution sees beyond the edge of an image."""
    if source_mask is None:
        return x
    return x.masked_fill(~source_mask.view(-1, 1, *x.shape[-2:]), 0)


def softmax_over_sources(score: Tensor, source_mask: Mask) -> Tensor:
    """Softmax of (B, source, R) over the sources that count; 0 for the others.

    The sources lie side by side in memory then: a GPU gives a softmax over another dimension a
    single block (`a2` of 131,072 neurons took 158 ms on an H200 that way, and takes 0.9).
    """
    if source_mask is None:
        return score.mT.softmax(-1).mT
    counts = source_mask.unsqueeze(1)
    # not -inf: an image without any source would give NaN
    return (score.mT.masked_fill(~counts, torch.finfo(score.dtype).min).softmax(-1) * counts).mT


def real_map(x: Tensor, source: Source, source_mask: Mask) -> Tensor:
    """Which neurons of x are real, as far as the mask of the sources tells: (B, H, W), 0 or 1."""
    real = x.new_ones(x.shape[0], *x.shape[-2:], dtype=torch.promote_types(x.dtype, torch.float32))
    if source is None and source_mask is not None:
        real = source_mask.to(real).unflatten(1, x.shape[-2:])
    return real


def extents(x: Tensor, source_mask: Mask) -> tuple[int | Tensor, int | Tensor]:
    """How many rows and columns of a map (B, C, H, W) are real; padding lies behind.

    -> H and W, or (B, 1, 1) each, at least 1.
    """
    height, width = x.shape[-2:]
    if source_mask is None:
        return height, width
    real = source_mask.unflatten(1, (height, width))
    lines = (line * (line_of(x, line.shape[1]) + 1) for line in (real.any(2), real.any(1)))
    rows, columns = (line.amax(1).clamp(min=1).view(-1, 1, 1) for line in lines)
    return rows, columns


def line_of(x: Tensor, length: int) -> Tensor:
    """0 to length - 1, on x's device, in float32 at least."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return torch.arange(length, device=x.device, dtype=dtype)


def hats(at: Tensor, count: int) -> Tensor:
    """Weigh places 0 to count - 1 for linear interpolation at `at` (...): (..., count)."""
    place = torch.arange(count, device=at.device, dtype=at.dtype)
    return (1 - (at.unsqueeze(-1) - place).abs()).clamp(min=0)


MOST_CELLS = 64  # a side of a grid: as many cells as neurons would be no saving


class Grids:
    """Grids of some numbers of cells a side, which divide the real part of each map evenly.

    R cells in all, grid by grid, row by row. Weights are products of one for the row and one for
    the column: (B, n, R), or (1, n, R) for all images alike where there is no padding.
    """

    def __init__(self, x: Tensor, source_mask: Mask, bins: Sequence[int]) -> None:
        self.bins, self.mask, self.size = list(bins), source_mask, list(x.shape[-2:])
        self.cell = torch.cat([line_of(x, grid) for grid in bins])  # of its grid, 0 to count - 1
        self.count = torch.cat([self.cell.new_full((grid,), grid) for grid in bins])
        # rows, then columns: on a GPU an operation costs more than its few numbers. In cells:
        widths = [self.count.view(1, 1, -1) / extent for extent in extents(x, source_mask)]
        axes = list(zip(self.size, widths, strict=True))
        self.width = torch.cat([width.expand(-1, length, -1) for length, width in axes], 1)
        starts = [line_of(x, length).unsqueeze(-1) * width for length, width in axes]
        self.start = torch.cat(starts, 1) - self.cell  # of a neuron, from where the cell begins

    def areas(self) -> Tensor:
        """The part of each cell that each neuron covers; 0 for neurons that do not count.

        A neuron on a border belongs to both by its area.
        """
        end = (self.start + self.width).clamp(max=1)
        return counted(self._over_the_map((end - self.start.clamp(min=0)).clamp(min=0)), self.mask)

    def cells(self) -> Tensor:
        """The share of each neuron in each cell's mean; sum 1 over n, 0 for an empty cell."""
        area = self.areas()
        return area if self.mask is None else area * reciprocal(area.sum(1)).unsqueeze(1)

    def between(self) -> Tensor:
        """The share of each cell for each neuron, bilinearly between centres; sum 1 a grid."""
        apart = self.start + (self.width - 1) / 2
        apart = apart.clamp(-self.cell, self.count - 1 - self.cell)
        return self._over_the_map((1 - apart.abs()).clamp(min=0))

    def _over_the_map(self, weights: Tensor) -> Tensor:
        """(., H + W, sum of bins) -> (., n, R)."""
        rows, columns = (one.split(self.bins, -1) for one in weights.split(self.size, 1))
        found = [
            row[:, :, None, :, None] * column[:, None, :, None, :]
            for row, column in zip(rows, columns, strict=True)
        ]
        return torch.cat([one.flatten(3) for one in found], -1).flatten(1, 2)


def refuse_source(context: Context, source: Tensor | None) -> None:
    """Refuse another map as the source, where a neuron looks at the places around its own."""
    if source is not None:
        problem = f"given to {type(context).__name__}, which looks around each neuron's own place"
        raise UserError("source", problem, "use a context that does not: sca, dot, average")


def check_whole_numbers(name: str, values: object, least: int, most: int) -> tuple[int, ...]:
    """Raise UserError unless values are some whole numbers from `least` to `most`."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        fits = f"give a list of whole numbers from {least} to {most}"
        raise UserError(name, f"{values!r}", fits)
    for value in values:
        check_whole_number(name, value, least, most)
    return tuple(values)
