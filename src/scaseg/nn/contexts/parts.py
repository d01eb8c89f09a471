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
    """Softmax of (B, source, R) over the sources that count; 0 for the others."""
    if source_mask is None:
        return score.softmax(1)
    counts = source_mask.unsqueeze(-1)
    # not -inf: an image without any source would give NaN
    return score.masked_fill(~counts, torch.finfo(score.dtype).min).softmax(1) * counts


def real_map(x: Tensor, source: Source, source_mask: Mask) -> Tensor:
    """Which neurons of x are real, as far as the mask of the sources tells: (B, H, W), 0 or 1."""
    real = x.new_ones(x.shape[0], *x.shape[-2:], dtype=torch.promote_types(x.dtype, torch.float32))
    if source is None and source_mask is not None:
        real = source_mask.to(real).unflatten(1, x.shape[-2:])
    return real


def places(line: Tensor) -> tuple[Tensor, Tensor]:
    """Number the rows (or columns) of a map, and say how many are real.

    line (B, length): 1 where a row has a real neuron -> (length,), (B, 1); padding lies behind.
    """
    place = torch.arange(line.shape[1], device=line.device, dtype=line.dtype)
    return place, (line * (place + 1)).amax(1, keepdim=True)


def hats(at: Tensor, count: int) -> Tensor:
    """Weigh places 0 to count - 1 for linear interpolation at `at` (...): (..., count)."""
    place = torch.arange(count, device=at.device, dtype=at.dtype)
    return (1 - (at.unsqueeze(-1) - place).abs()).clamp(min=0)


def grid_cells(real: Tensor, grid: int) -> Tensor:
    """Divide the real part of each map into grid x grid cells of equal size.

    real (B, H, W): 1 where a neuron counts -> (B, grid^2, n): the share of each neuron in each
    cell's mean, 0 where a cell has none. A neuron on a border belongs to both by its area.
    """

    def overlap(line: Tensor) -> Tensor:
        """line (B, length): 1 where a row counts -> (B, grid, length): parts of it in each cell."""
        place, count = places(line)
        extent = count.unsqueeze(-1)
        cell = torch.arange(grid, device=line.device, dtype=line.dtype).view(-1, 1)
        low, high = cell * extent / grid, (cell + 1) * extent / grid
        return (torch.minimum(place + 1, high) - torch.maximum(place, low)).clamp(min=0)

    rows, columns = overlap(real.amax(2)), overlap(real.amax(1))
    parts = (rows.unsqueeze(2).unsqueeze(-1) * columns.unsqueeze(1).unsqueeze(3)).flatten(1, 2)
    area = (parts * real.unsqueeze(1)).flatten(2)  # (B, R, n)
    return area * reciprocal(area.sum(-1)).unsqueeze(-1)


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
