"""Point-wise spatial attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.context import Context, Mask, Source
from scaseg.nn.contexts.parts import convolution, extents, hats, line_of, refuse_source
from scaseg.ops.checks import check_whole_number
from scaseg.ops.precision import without_autocast

MOST_PLACES = 129  # a side: the paper's maps have 2 H - 1


class PsaContext(Context):
    """Each neuron predicts a map over the places around it: what it takes, and what it gives.

    Collect: a_ij = c_i(j - i), predicted by the target; distribute: a_ij = d_j(i - j), predicted by
    the source. Both are softmaxes over the sources, and the context is the mean of the two. No
    features of a pair are compared: a map follows from one neuron and from where things lie. Two
    1x1 convolutions with a ReLU between them predict the scores at grid x grid places, from one
    image's height above or left to one below or right; between places, scores are interpolated.
    O(n^2) time and memory. In the paper there is a score for each of (2 H - 1)(2 W - 1) places of
    maps of one size, and a matrix for each branch.
    """

    exclude_self = False
    order = "n^2"
    neuron_selective = True
    reference = (
        "Zhao et al., PSANet: point-wise spatial attention network for scene parsing, ECCV 2018"
    )
    score_parts = ("collect", "distribute")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        grid: int = 15,
        key_channels: int = 64,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("grid", grid, 2, MOST_PLACES)
        check_whole_number("key_channels", key_channels, 1)
        self.grid = grid
        self.collect, self.distribute = (
            nn.Sequential(
                convolution(in_channels, key_channels),
                nn.ReLU(),
                nn.Conv2d(key_channels, grid * grid, kernel_size=1),
            )
            for _ in range(2)
        )

    def attend(self, x: Tensor, source_mask: Mask) -> tuple[Tensor, Tensor]:
        """Return what each neuron takes, (B, target, source), and gives, (B, source, target).

        Both sum to 1 over the sources. n x n numbers are neither turned round nor added up: on a
        GPU that would take longer than all the rest.
        """
        taken = surroundings(self.collect(x), self.grid, source_mask)
        given = surroundings(self.distribute(x), self.grid, source_mask)
        if source_mask is None:
            return taken.softmax(2), given.softmax(1)
        counts, least = source_mask.unsqueeze(-1), torch.finfo(taken.dtype).min
        taken = taken.masked_fill(~counts.mT, least).softmax(2) * counts.mT
        return taken, given.masked_fill(~counts, least).softmax(1) * counts

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        values, (taken, given) = self.values(x), self.attend(x, source_mask)
        return (taken.to(values) @ values + given.to(values).mT @ values) / 2

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        refuse_source(self, source)
        taken, given = self.attend(x, source_mask)
        return (taken[:, targets] + given[..., targets].mT) / 2


def surroundings(score: Tensor, grid: int, source_mask: Mask) -> Tensor:
    """Read each neuron's scores of the places around it at all neurons: (B, n, n).

    score (B, grid^2, H, W); the middle of the grid is the neuron itself, and its edges lie one
    extent of the real part away.
    """

    def along(length: int, extent: int | Tensor) -> Tensor:
        """-> (B or 1, length, length, grid): weights of the places for each offset."""
        place = line_of(score, length)
        offset = (place - place.unsqueeze(1)).unsqueeze(0) / extent
        return hats((offset + 1) * (grid - 1) / 2, grid)

    rows, columns = map(along, score.shape[-2:], extents(score, source_mask))
    with without_autocast(score):
        scores = score.to(rows.dtype).unflatten(1, (grid, grid))
        above = torch.einsum("bgkhw,bhrg->bhwrk", scores, rows)
        return (above @ columns.mT.unsqueeze(1)).flatten(3).flatten(1, 2)  # (B, H, W, H, W)
