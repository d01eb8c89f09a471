"""Recurrent sweeps over the map."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import neurons, refuse_source
from scaseg.ops.checks import check_whole_number
from scaseg.ops.precision import without_autocast

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
        sweeps, batch = len(DIRECTIONS), len(x)
        entered = neurons(self.enter(x)).unflatten(2, (sweeps, -1)).movedim(2, 0)  # (4, B, n, d)
        kept = None
        if source_mask is not None:
            counts = source_mask.unsqueeze(-1).to(entered.dtype)
            kept = by_diagonals(counts.expand(sweeps, -1, -1, -1), height, width)
        weight = self.recur.to(entered.dtype).repeat_interleave(batch, 0)  # (4 B, d, d)
        with without_autocast(x):
            states = Sweeps.apply(by_diagonals(entered, height, width), weight, kept)
        found = from_diagonals(states[2:, :, 1:].unflatten(1, (sweeps, batch)), height, width)
        return found.movedim(0, 1).mT.flatten(1, 2).unflatten(2, (height, width)).to(x.dtype)


def by_diagonals(maps: Tensor, height: int, width: int) -> Tensor:
    """Arrange maps (4, B, n, d) by anti-diagonals, as each sweep meets them: (steps, 4 B, side, d).

    The side is the shorter one: a neuron keeps its place along it, and lies in step row + column.
    What lies outside of the map is 0.
    """
    maps = _turned(maps.unflatten(2, (height, width)))
    maps = maps if height <= width else maps.transpose(2, 3)
    side, length = maps.shape[2:4]
    # line k moves k places: with `side` more places a line, read in lines of one place less
    flat = F.pad(maps, (0, 0, 0, side)).flatten(2, 3)[:, :, : side * (length + side - 1)]
    skewed = flat.unflatten(2, (side, length + side - 1))
    return skewed.movedim(3, 0).flatten(1, 2).contiguous()


def from_diagonals(skewed: Tensor, height: int, width: int) -> Tensor:
    """The inverse: (steps, 4, B, side, d) -> (4, B, n, d)."""
    skewed = skewed.movedim(0, 3)
    side, length = skewed.shape[2], max(height, width)
    flat = F.pad(skewed.flatten(2, 3), (0, 0, 0, side))
    maps = flat.unflatten(2, (side, length + side))[:, :, :, :length]
    maps = maps if height <= width else maps.transpose(2, 3)
    return _turned(maps).flatten(2, 3)


def _turned(maps: Tensor) -> Tensor:
    """Flip the maps (4, B, H, W, d) so that all sweeps begin at the top left, or flip them back."""
    flips = ([axis + 1 for axis in axes] for axes in DIRECTIONS)
    return torch.stack([one.flip(axes) for one, axes in zip(maps, flips, strict=True)])


class Sweeps(Function):
    """The states of all neurons, a diagonal a step; both passes with few and large operations.

    entered (steps, G, side, d): U x + b by diagonals, weight (G, d, d): W, kept (steps, G, side, 1)
    or None: 0 where a state is none -> (steps + 2, G, side + 1, d): two diagonals of zeros come
    first, and a line of zeros in each. A state beyond the far edge is no predecessor of any on the
    map, and one before the near edge is 0 by itself.
    """

    @staticmethod
    def forward(entered: Tensor, weight: Tensor, kept: Tensor | None) -> Tensor:
        states = F.pad(entered, (0, 0, 1, 0, 0, 0, 2, 0))
        beside, above = _lines(states)
        for step in range(len(entered)):
            arriving = (beside[step + 1] + above[step + 1]).add_(above[step])
            beside[step + 2].baddbmm_(arriving, weight).tanh_()
            if kept is not None:
                beside[step + 2].mul_(kept[step])
        return states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, kept = ctx.saved_tensors
        slope = 1 - states[2:, :, 1:].square()
        slope = slope if kept is None else slope * kept
        sweep_back = _sweep_back_anew if torch.is_grad_enabled() else _sweep_back
        entered = sweep_back(grad, slope, weight.mT)
        arriving = states[1:-1, :, 1:] + states[1:-1, :, :-1] + states[:-2, :, :-1]
        return entered, torch.einsum("tgsi,tgsj->gij", arriving, entered), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        """What torch.func.vmap runs over is more sweeps side by side."""
        wide = []
        for one, dim, groups in zip(inputs, in_dims, (1, 0, 1), strict=True):
            if one is not None:
                one = one.unsqueeze(0) if dim is None else one.movedim(dim, 0)
                one = one.expand(info.batch_size, *one.shape[1:]).movedim(0, groups)
                one = one.flatten(groups, groups + 1)
            wide.append(one)
        return Sweeps.apply(*wide).unflatten(1, (info.batch_size, -1)), 1


def _sweep_back(grad: Tensor, slope: Tensor, back: Tensor) -> Tensor:
    """The gradient of what entered: of the states, a diagonal a step, times their slopes."""
    grad = grad.clone(memory_format=torch.contiguous_format)
    beside, above = _lines(grad)
    for step in reversed(range(len(slope))):
        arriving = torch.bmm(beside[step + 2].mul_(slope[step]), back)
        for before in (beside[step + 1], above[step + 1], above[step]):
            before.add_(arriving)
    return grad[2:, :, 1:]


def _sweep_back_anew(grad: Tensor, slope: Tensor, back: Tensor) -> Tensor:
    """The same, and nothing is overwritten: a second backward pass differentiates it."""
    grads, entered = list(grad), []
    for step in reversed(range(len(slope))):
        entered.append(grads[step + 2][:, 1:] * slope[step])
        arriving = torch.bmm(entered[-1], back)
        above = F.pad(arriving, (0, 0, 0, 1))
        grads[step + 1] = grads[step + 1] + F.pad(arriving, (0, 0, 1, 0)) + above
        grads[step] = grads[step] + above
    return torch.stack(entered[::-1])


def _lines(states: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The lines of each diagonal, and those above them."""
    return (
        [states[step, :, 1:] for step in range(len(states))],
        [states[step, :, :-1] for step in range(len(states))],
    )
