"""The fast forms of contexts against the obvious ones: values, gradients, masks, low precision."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from scaseg.nn.contexts.parts import Grids, softmax_over_sources
from scaseg.nn.contexts.position import WAVES, waves
from tests.nn.blocks import make

SIZES = [(1, 1), (1, 7), (5, 3), (13, 11)]
FACTORED = ["balanced", "gated", "position", "agents", "cells", "object", "object, by area"]
FACTORED += ["a2", "ema"]


def masks(height, width):
    """None; a padded image beside a whole one; holes, a whole cell among them."""
    padded = torch.zeros(2, height, width, dtype=torch.bool)
    padded[0, : (height + 1) // 2, : (2 * width + 2) // 3] = True
    padded[1] = True
    holes = torch.rand(2, height, width) < 0.8
    holes[0, : height // 2, : width // 2] = False
    holes[1] = height == 1  # nothing at all, or everything
    return {"none": None, "padded": padded, "holes": holes}


def extent(counts):
    """Rows and columns of (H, W) up to the last that counts; 1 at least."""
    rows, columns = counts.any(1).nonzero(), counts.any(0).nonzero()
    return [int(one.max()) + 1 if len(one) else 1 for one in (rows, columns)]


def cell_means(x, counts, grid):
    """Means over cells by area, each neuron cut into grid x grid: (C, H, W) -> (C, grid, grid)."""
    height, width = x.shape[-2:]
    cut = [one.repeat_interleave(grid, -1).repeat_interleave(grid, -2) for one in (x, counts)]
    total, area = (
        F.avg_pool2d(one.unsqueeze(0), (height, width))[0] for one in (cut[0] * cut[1], cut[1])
    )
    return total / area.masked_fill(area == 0, 1), area > 0


def obvious_psp(block, x, mask):
    """One image and one grid after the other; branches side by side, then P. Padding is 0."""
    x = x if mask is None else torch.where(mask.unsqueeze(1), x, 0)
    found = torch.zeros_like(block.identity(x))
    for image, own in enumerate(x):
        counts = x.new_ones(own.shape[-2:]) if mask is None else mask[image].to(x.dtype)
        height, width = extent(counts > 0)
        own, counts = own[:, :height, :width], counts[None, :height, :width]
        branches = []
        for grid, level in zip(block.bins, block.levels, strict=True):
            mean, there = cell_means(own, counts, grid)
            reduced = level(mean.unsqueeze(0)).relu() * there
            up = [
                F.interpolate(one, (height, width), mode="bilinear")
                for one in (reduced, there.to(x).unsqueeze(0))
            ]
            branches.append(up[0] / up[1].masked_fill(up[1] == 0, 1))
        context = block.project(torch.cat(branches, 1))[0]
        found[image, :, :height, :width] = block.identity(own.unsqueeze(0))[0] + context
    return found


def inside(found, mask):
    """Without what lies behind the real part of an image: nobody's business."""
    if mask is None:
        return found
    kept = torch.zeros_like(mask)
    for image, counts in enumerate(mask):
        height, width = extent(counts)
        kept[image, :height, :width] = True
    return found * kept.unsqueeze(1)


def both(found, leaves, grad):
    return [found, *torch.autograd.grad(found, leaves, grad)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["none", "padded", "holes"])
def test_psp_is_branches_side_by_side(size, kind):
    block = make("psp", bins=[1, 3, 4]).double()
    x = torch.randn(2, 6, *size, dtype=torch.float64)
    mask = masks(*size)[kind]
    x.requires_grad_()
    leaves, grad = [x, *block.parameters()], torch.randn_like(block(x))
    found = both(inside(block(x, mask=mask), mask), leaves, grad)
    for one, expected in zip(found, both(obvious_psp(block, x, mask), leaves, grad), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["none", "padded", "holes"])
def test_agents_are_means_of_cells(size, kind):
    block = make("agents").double()
    x, mask = torch.randn(2, 6, *size, dtype=torch.float64), masks(*size)[kind]
    channel_share, source_share = block.factors(x, None, None if mask is None else mask.flatten(1))
    for image in range(2):
        counts = torch.ones(size) if mask is None else mask[image]
        height, width = extent(counts > 0)
        query, key = (layer(x[image : image + 1])[0] for layer in (block.query, block.key))
        agents, there = cell_means(
            query[:, :height, :width], counts[None, :height, :width].to(x.dtype), block.grid
        )
        agents, there = agents.flatten(1).mT / 2, there.flatten()  # sqrt(d) = 2
        score = (agents @ key.flatten(1)).masked_fill(counts.flatten() == 0, -torch.inf)
        if (counts > 0).any():
            torch.testing.assert_close(source_share[image], score.softmax(-1).mT)
            wanted = (query.flatten(1).mT @ agents.mT).masked_fill(~there, -torch.inf)
            torch.testing.assert_close(channel_share[image], wanted.softmax(-1))
        else:
            assert (source_share[image] == 0).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["none", "padded", "holes"])
def test_cells_weigh_sources_one_by_one(size, kind):
    """Every pair of a target and a source by itself, through the cells that the source is in."""
    block = scored(make("cells")).double()
    x, mask = torch.randn(2, 6, *size, dtype=torch.float64), masks(*size)[kind]
    flat = None if mask is None else mask.flatten(1)
    rows = block.coefficient_rows(x, None, torch.arange(math.prod(size)), flat)
    for image in range(2):
        counts = torch.ones(size) if mask is None else mask[image]
        height, width = extent(counts > 0)
        one = x[image : image + 1]
        query, key, score = (layer(one)[0] for layer in (block.query, block.key, block.score))
        weights = []  # of every source that counts, in every cell: its area there times exp(t_j)
        for row, col in (counts > 0).nonzero().tolist():
            areas = overlaps(row, height, block.grid)[:, None] * overlaps(col, width, block.grid)
            weights.append(areas.flatten() * score[0, row, col].exp())
        if not weights:
            assert (rows[image] == 0).all()
            continue
        weight = torch.stack(weights)  # (source, R)
        keys = key.permute(1, 2, 0)[counts > 0]  # (source, d)
        means = (weight.mT @ keys) / weight.sum(0).clamp(min=1e-300).unsqueeze(1)
        pull = (query.flatten(1).mT @ means.mT / 2).exp()  # (target, R); sqrt(d) = 2
        expected = pull @ weight.mT
        found = rows[image][:, (counts > 0).flatten()]
        torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True))


def overlaps(place, length, grid):
    """How much of the stretch from place to place + 1 lies in each of the cells of 0 to length."""
    edges = torch.linspace(0, length, grid + 1, dtype=torch.float64)
    return (edges[1:].clamp(max=place + 1) - edges[:-1].clamp(min=place)).clamp(min=0)


def scored(block):
    """With scores that differ: a fresh block's are nearly the same."""
    torch.nn.init.normal_(block.score.weight, std=0.7)
    return block


@pytest.mark.parametrize("size", SIZES)
def test_shares_of_grids_add_up(size):
    """Each cell's mean has all its neurons, each neuron one mean of each grid."""
    grids = Grids(torch.zeros(1, 2, *size), None, [1, 2, 6])
    assert grids.cells().shape == grids.between().shape == (1, math.prod(size), 41)
    torch.testing.assert_close(grids.cells().sum(1), torch.ones(1, 41))
    for one in grids.between().split([1, 4, 36], -1):
        torch.testing.assert_close(one.sum(-1), torch.ones(1, math.prod(size)))


def test_a_neuron_on_a_border_belongs_to_both_cells():
    """Nine columns in two cells: half of the fifth is in each."""
    shares = Grids(torch.zeros(1, 1, 8, 9), None, [2]).cells().mT.unflatten(2, (8, 9))[0, 0, 0]
    torch.testing.assert_close(shares, torch.tensor([2.0] * 4 + [1.0] + [0.0] * 4) / 36)


@pytest.mark.parametrize("masked", [False, True])
def test_softmax_over_sources(masked):
    score = 9 * torch.randn(2, 63, 5, dtype=torch.float64)
    mask = torch.rand(2, 63) < (0.5 if masked else 1.1)
    mask[1] = ~torch.tensor(masked)  # nothing to choose from
    found = softmax_over_sources(score, mask if masked else None)
    for image in range(2 - masked):
        expected = torch.zeros(63, 5, dtype=torch.float64)
        expected[mask[image]] = score[image, mask[image]].softmax(0)
        torch.testing.assert_close(found[image], expected)
    if masked:
        assert (found[1] == 0).all()
    assert found.mT.is_contiguous()  # as the product with the features wants it


@pytest.mark.parametrize("kind", ["none", "padded"])
def test_waves_of_each_place(kind):
    size, mask = (5, 7), masks(5, 7)[kind]
    weight = torch.randn(3, 4 * WAVES, dtype=torch.float64)
    x = torch.zeros(2, 1, *size, dtype=torch.float64)
    found = waves(x, None if mask is None else mask.flatten(1), weight).expand(2, -1, -1)
    for image in range(2):
        extents = size if mask is None else extent(mask[image])
        for neuron in range(35):
            place = [
                math.pi * (at + 0.5) / of * 2**wave
                for at, of in zip(divmod(neuron, 7), extents, strict=True)
                for wave in range(WAVES)
            ]
            row, column = torch.tensor(place, dtype=torch.float64).chunk(2)
            turned = torch.cat([row.sin(), row.cos(), column.sin(), column.cos()])
            torch.testing.assert_close(found[image, neuron], weight @ turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parsenet_of_a_neuron_that_is_0(dtype):
    """As in padding: no length to divide by, in any precision."""
    block, x = make("parsenet").to(dtype), torch.randn(1, 6, 4, 5).to(dtype)
    x[:, :, 2] = 0
    x.requires_grad_()
    found = block(x)
    found.float().sum().backward()
    assert found.isfinite().all()
    assert x.grad[:, :, :2].isfinite().all()


@pytest.mark.parametrize("name", FACTORED)
@pytest.mark.parametrize("masked", [False, True])
def test_means_first_then_w_c(name, masked):
    """As with W_c of every neuron, all coefficients written out; gradients too."""
    block, x = make(name).double(), torch.randn(2, 6, 7, 9, dtype=torch.float64)
    x.requires_grad_()
    mask = (torch.rand(2, 63) < 0.7) if masked else None
    channel_share, source_share = block.factors(x, None, mask)
    dense = channel_share @ source_share.mT @ block.values(x)
    leaves, grad = [x, block.context.weight], torch.randn_like(dense)
    found = both(block.target_context(x, None, mask), leaves, grad)
    for one, expected in zip(found, both(dense, leaves, grad), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.parametrize("name", ["a2", "object", "agents", "cells", "psp", "parsenet"])
def test_low_precision_costs_what_it_must(name):
    """Errors of at most twice those of the obvious form in bfloat16."""
    block = make(name, in_channels=32)
    x = torch.randn(1, 32, 40, 50).bfloat16()
    exact, low = copy.deepcopy(block).double(), block.bfloat16()
    exact.load_state_dict(low.state_dict())

    def obvious(block, x):
        if name == "psp":
            return obvious_psp(block, x, None)
        if name == "parsenet":
            own, mean = F.normalize(x, dim=1), F.normalize(x.mean((2, 3), keepdim=True), dim=1)
            scales = (block.identity_scale, block.context_scale)
            own, mean = (
                one * scale.view(-1, 1, 1) for one, scale in zip((own, mean), scales, strict=True)
            )
            return block.identity(own) + block.context(mean)
        values = block.values(x)
        channel_share, source_share = (one.to(x) for one in block.factors(x, None, None))
        return block.combine(x, channel_share @ (source_share.mT @ values))

    with torch.no_grad():
        expected = obvious(exact, x.double())
        allowed = 2 * (obvious(low, x) - expected).abs().max() + 1e-5
        assert (low(x) - expected).abs().max() <= allowed


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_branches_of_aspp_keep_the_layout(layout):
    """One of another layout would have all five turned round, at the cost of a convolution."""
    block, x = make("aspp"), torch.randn(2, 6, 9, 8).contiguous(memory_format=layout)
    assert block.branches(x, None, None).is_contiguous(memory_format=layout)
    assert block(x).is_contiguous(memory_format=layout)
