"""The linear-time Gaussian filter against every pair."""

import pytest
import torch

from scaseg.errors import UserError
from scaseg.ops.permutohedral import PermutohedralLattice, _simplices, gaussian_filter


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_a_point_is_the_mean_of_its_corners(dimensions):
    """Shares are barycentric coordinates: corners weighted by them give the point back."""
    points = 5 * torch.randn(500, dimensions, dtype=torch.float64)
    corners, share = _simplices(points)
    assert share.min() >= -1e-12
    torch.testing.assert_close(share.sum(1), torch.ones(500, dtype=torch.float64))
    last = -corners.sum(-1, keepdim=True)
    remainder = torch.cat([corners, last], -1) % (dimensions + 1)
    expected = torch.arange(dimensions + 1).view(1, -1, 1)
    assert torch.equal(remainder, expected.expand_as(remainder))
    # a linear function of points is that of their corners: distances, up to one scale
    means = (corners * share.unsqueeze(-1)).sum(1)
    lifted = torch.cat([means, -means.sum(-1, keepdim=True)], -1)
    ratio = torch.pdist(lifted) / torch.pdist(points)
    torch.testing.assert_close(ratio, ratio[0].expand_as(ratio))


@pytest.mark.parametrize(("dimensions", "mean", "worst"), [(1, 2e-3, 0.03), (2, 4e-3, 0.1)])
def test_close_to_every_pair(dimensions, mean, worst):
    torch.manual_seed(0)
    points, values = 2 * torch.randn(1500, dimensions), torch.rand(1500, 3)
    lattice, one = PermutohedralLattice(points), torch.ones(1500, 1)
    found = lattice(values) / lattice(one)
    expected = gaussian_filter(points, values) / gaussian_filter(points, one)
    apart = (found - expected).abs()
    assert apart.mean() < mean
    assert apart.max() < worst
    # one factor for all
    factor = lattice(one) / gaussian_filter(points, one)
    assert factor.std() < 0.03 * factor.mean()


def test_the_filter_has_the_width_of_the_gaussian():
    """On a line of points, a single value spreads with variance 1."""
    points = torch.arange(-8, 8, 0.02, dtype=torch.float64).unsqueeze(1)
    value = torch.zeros(len(points), 1, dtype=torch.float64)
    variances = []
    for place in range(380, 420, 4):
        value.zero_()[place] = 1
        spread = PermutohedralLattice(points)(value).flatten()
        away = points.flatten() - points[place]
        variances.append((spread * away**2).sum() / spread.sum())
    assert abs(torch.stack(variances).mean() - 1) < 0.02


def test_points_alike_and_points_alone():
    """Points in one place share their mean; one far from all keeps its value."""
    points = torch.zeros(5, 3)
    points[4] = 100
    values = torch.tensor([[1.0], [2.0], [3.0], [6.0], [7.0]])
    lattice = PermutohedralLattice(points)
    found = lattice(values) / lattice(torch.ones(5, 1))
    torch.testing.assert_close(found.flatten(), torch.tensor([3.0, 3.0, 3.0, 3.0, 7.0]))


def test_kernels_too_small_to_count_cells():
    with pytest.raises(UserError, match=r"features: 2 points span too many cells .*; give wider"):
        PermutohedralLattice(torch.tensor([[0.0] * 5, [1e6] * 5]))
