"""Recurrent sweeps over the map."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import neurons, real_map, refuse_source
from scaseg.ops.checks import check_whole_number

DIRECTIONS = ((), (1,), (0,), (0, 1))  # axes that are flipped: sweeps from each of the corners
MEMORY = 0.9  # of a fresh sweep: how much is left of a state one neuron further


class DagrnnContext(BranchContext):
    """Four recurrent sweeps, one from each corner; a state follows from the three before it.

    From the top left, g_v = tanh(U x_v + b + W (g_above + g_left + g_above_left)): the map of eight
    neighbours is an undirected graph, and four directed ones without cycles cover its edges. Each
    sweep has its own U, W and b, and P takes all four states. O(n d^2), d = branch_channels.

    A state waits for its predecessors, so H W steps of a loop; but those of one anti-diagonal wait
    for the two diagonals before it alone: H + W - 1 steps here, all four sweeps side by side. U
    starts small and W as a third of the identity, times 0.9, so that a fresh state reaches some
    ten neurons far. tanh is ours: three predecessors make an unbounded state grow with the number
    of paths, which is exponential in the side of the map.
    """

    input_dependent = False
    neuron_selective = True
    reference = (
        "Shuai, Zuo, Wang and Wang, DAG-recurrent neural networks for scene labeling, CVPR "
        "2016, and Scene segmentation with DAG-recurrent neural networks, TPAMI 2018"
    )
    not_exported = "its steps are as many as a map has diagonals"

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, branch_channels: int = 64
    ) -> None:
        check_whole_number("branch_channels", branch_channels, 1)
        sweeps = len(DIRECTIONS)
        super().__init__(in_channels, out_channels, channels=sweeps * branch_channels)
        self.enter = nn.Conv2d(in_channels, sweeps * branch_channels, kernel_size=1)  # U, b
        nn.init.xavier_uniform_(self.enter.weight, gain=0.2)
        nn.init.zeros_(self.enter.bias)  # type: ignore[arg-type]
        start = torch.eye(branch_channels) * MEMORY / 3
        self.recur = nn.Parameter(start.repeat(sweeps, 1, 1))  # W

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        height, width = x.shape[-2:]
        entered = neurons(self.enter(x)).unflatten(2, (len(DIRECTIONS), -1))  # (B, n, 4, d)
        keep = real_map(x, source, source_mask).flatten(1)  # (B, n)
        order = diagonal_order(height, width, x.device)  # (4, n)
        arranged = torch.stack([entered[:, own, k] for k, own in enumerate(order)])
        kept = torch.stack([keep[:, own] for own in order]).unsqueeze(-1)
        with torch.autocast(x.device.type, enabled=False):
            weight = self.recur.to(arranged.dtype)
            states = sweep(arranged, kept, weight, height, width)  # (4, B, n, d)
        back = order.argsort(1)
        found = torch.cat([state[:, own] for state, own in zip(states, back, strict=True)], -1)
        return found.mT.unflatten(2, (height, width)).to(x.dtype)


def diagonal_order(height: int, width: int, device: torch.device) -> Tensor:
    """The neurons of a map by anti-diagonals, as each sweep meets them: (4, n)."""
    row = torch.arange(height, device=device).unsqueeze(1).expand(height, width)
    column = torch.arange(width, device=device).expand(height, width)
    by_diagonal = ((row + column) * height + row).flatten().argsort()
    place = row * width + column
    return torch.stack([place.flip(axes).flatten()[by_diagonal] for axes in DIRECTIONS])


def sweep(entered: Tensor, kept: Tensor, weight: Tensor, height: int, width: int) -> Tensor:
    """Return the states of all neurons: (4, B, n, d), by anti-diagonals as `entered` is.

    entered (4, B, n, d): U x + b; kept (4, B, n, 1): 0 where a state is none; weight (4, d, d): W.
    """
    sweeps, batch, _, channels = entered.shape
    states: list[Tensor] = []
    last = before = entered.new_zeros(sweeps, batch, 0, channels)  # of the two diagonals before
    first = (0, 0)  # the rows in which these begin
    place = 0
    for diagonal in range(height + width - 1):
        top, bottom = max(0, diagonal - width + 1), min(height - 1, diagonal)
        length = bottom - top + 1
        here = slice(place, place := place + length)
        # rows top - 1 to bottom of the last diagonal, with zeros beyond the edge of the map
        beside = _rows(last, first[0], top - 1, bottom)
        corner = _rows(before, first[1], top - 1, bottom - 1)
        arriving = (beside[:, :, 1:] + beside[:, :, :-1] + corner).flatten(1, 2)
        recurring = (arriving @ weight).unflatten(1, (batch, length))
        state = torch.tanh(entered[:, :, here] + recurring) * kept[:, :, here]
        states.append(state)
        last, before, first = state, last, (top, first[0])
    return torch.cat(states, 2)


def _rows(state: Tensor, first: int, top: int, bottom: int) -> Tensor:
    """Rows top to bottom of a diagonal that begins in row `first`; others are 0."""
    after = bottom - (first + state.shape[2] - 1)
    return F.pad(state, (0, 0, first - top, after))  # what is negative is cut off
