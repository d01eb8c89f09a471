"""What defines each of the published contexts."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.errors import UserError
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.nn.contexts.dilated import DilatedContext
from tests.nn.blocks import OF_ONE_MAP, WITHOUT_MAPS, make


def random_map(*size):
    return torch.randn(2, 6, *size, dtype=torch.float64)


def reached(block, side, row, col):
    """Which neurons' outputs change with the input at (row, col): (side, side)."""
    x = torch.rand(1, block.in_channels, side, side, dtype=torch.float64) + 1
    other = x.clone()
    other[:, :, row, col] += 1
    return ((block(other) - block(x)).abs().amax(1)[0] > 1e-9).detach()


def keep_positive(block):
    """So that no ReLU hides what a neuron sees."""
    for parameter in block.parameters():
        parameter.data = parameter.data.abs() + 0.1
    return block


def test_parsenet_knows_no_size():
    """Neurons and mean are normalized: a map ten times as large gives the same."""
    block, x = make("parsenet").double(), random_map(4, 5)
    torch.testing.assert_close(block(10 * x), block(x))
    mean = F.normalize(x.mean((2, 3)), dim=1) * 6**0.5
    own = F.normalize(x, dim=1) * 6**0.5
    expected = block.identity(own) + block.context(mean[..., None, None])
    torch.testing.assert_close(block(x), expected)


def test_psp_with_one_cell_is_the_average():
    block, x = make("psp", bins=[1]).double(), random_map(5, 7)
    mean = block.levels[0](x.mean((2, 3), keepdim=True)).relu()
    torch.testing.assert_close(block(x), block.identity(x) + block.project(mean))


def test_psp_pools_and_interpolates():
    """As PyTorch's own pools and resizing do where cells are whole neurons."""
    block, x = make("psp", bins=[1, 2, 3]).double(), random_map(6, 12)
    found = [
        F.interpolate(level(F.adaptive_avg_pool2d(x, grid)).relu(), (6, 12), mode="bilinear")
        for grid, level in zip([1, 2, 3], block.levels, strict=True)
    ]
    expected = block.identity(x) + block.project(torch.cat(found, 1))
    torch.testing.assert_close(block(x), expected)


def test_psp_from_another_image():
    block, x, y = make("psp").double(), random_map(4, 5), random_map(7, 3)
    assert not torch.equal(block(x, source=y), block(x))
    padded = F.pad(y, (0, 2, 0, 3), value=7.0)
    mask = torch.zeros(2, 10, 5, dtype=torch.bool)
    mask[:, :7, :3] = True
    torch.testing.assert_close(block(x, source=padded, mask=mask), block(x, source=y))
    nothing = torch.zeros(2, 7, 3, dtype=torch.bool)
    torch.testing.assert_close(block(x, source=y, mask=nothing), block.identity(x))


def test_dilated_sees_67_neurons_a_side():
    block = keep_positive(DilatedContext(2, branch_channels=1)).double()
    assert block.receptive_field == "67 x 67 neurons"
    seen = reached(block, 73, 36, 36)
    expected = torch.zeros_like(seen)
    expected[3:70, 3:70] = True
    assert torch.equal(seen, expected)


def test_dilated_starts_as_the_identity():
    block, x = make("dilated").double(), random_map(9, 9)
    expected = block.identity(x) + block.project(block.reduce(x).relu())
    torch.testing.assert_close(block(x), expected)


def test_aspp_sees_its_rates_and_the_image():
    block = keep_positive(make("aspp", rates=[2, 5])).double()
    assert reached(block, 15, 7, 7).all()  # through the mean
    torch.nn.init.zeros_(block.everywhere.weight)
    seen = reached(block, 15, 7, 7)
    expected = torch.zeros_like(seen)
    for rate in (2, 5):
        expected[7 - rate : 8 + rate : rate, 7 - rate : 8 + rate : rate] = True
    assert torch.equal(seen, expected)


@pytest.mark.parametrize("rounds", [1, 2])
def test_ccnet_reaches_its_cross_then_the_map(rounds):
    block, x = make("ccnet", rounds=rounds).double(), random_map(5, 6)
    weighed = block.dependency_map(x, 2, 4) > 0
    expected = torch.zeros(2, 5, 6, dtype=torch.bool)
    expected[:, 2], expected[:, :, 4] = True, True
    assert torch.equal(weighed, expected if rounds == 1 else torch.ones_like(expected))


def test_ccnet_is_attention_to_the_row_and_the_column():
    """One round against the n x n matrix: each neuron of the cross counts once, itself too."""
    block, x = make("ccnet", rounds=1).double(), random_map(4, 5)
    query, key = (layer(x).flatten(2).mT for layer in (block.query, block.key))
    score = query @ key.mT * 4**-0.5
    row, column = torch.arange(20) // 5, torch.arange(20) % 5
    cross = (row[:, None] == row) | (column[:, None] == column)
    share = score.masked_fill(~cross, -torch.inf).softmax(-1)
    torch.testing.assert_close(block.coefficients(x), share)
    torch.testing.assert_close(block(x), block.combine(x, share @ block.values(x)))


def test_gcnet_has_one_map_for_all():
    block, x = make("gcnet").double(), random_map(4, 5)
    torch.nn.init.normal_(block.score.weight)
    matrix = block.coefficients(x)
    assert torch.equal(matrix, matrix[:, :1].expand_as(matrix))
    assert matrix[0, 0].std() > 1e-3
    context = block(x) - block.identity(x)
    torch.testing.assert_close(context, context[..., :1, :1].expand_as(context))


def test_each_step_fits_emas_bases_better():
    """The likelihood of the features rises with every step, and ever less: a fixed point."""
    block, x = make("ema").double(), random_map(9, 9)
    feature = block.feature(x).flatten(2).mT
    bases = [block.fit(feature, None, steps) for steps in range(8)]
    fits = torch.stack([(feature @ one.mT).logsumexp(-1).sum(1) for one in bases])
    gains = fits.diff(dim=0)
    assert (gains >= -1e-9).all()
    assert (gains[0] > 1).all()
    assert (gains[-1] < 0.2 * gains[0]).all()


def test_ema_is_even_for_neurons_that_are_alike():
    block = make("ema", steps=5).double()
    x = random_map(4, 5)
    x[..., 3, 4] = x[..., 0, 0]
    matrix = block.coefficients(x)
    torch.testing.assert_close(matrix[:, 0], matrix[:, 19])
    torch.testing.assert_close(matrix[..., 0], matrix[..., 19])


@pytest.mark.parametrize("name", OF_ONE_MAP)
def test_another_map_has_no_places_around_a_neuron(name):
    with pytest.raises(UserError, match=r"source: given to \w+, which looks around .*; use"):
        make(name)(torch.randn(1, 6, 4, 5), source=torch.randn(1, 6, 4, 5))


@pytest.mark.parametrize("name", WITHOUT_MAPS)
def test_no_maps_where_there_are_none(name):
    block, x = make(name), torch.randn(1, 6, 4, 5)
    with pytest.raises(UserError, match=r"context: \w+ is not a weighted mean: it has no coeff"):
        block.dependency_map(x, 0, 0)
    with pytest.raises(UserError, match=r"coefficients: given to \w+, which is not a weighted"):
        block(x, coefficients=torch.ones(1, 20, 20))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("psp", "bins", []),
        ("psp", "bins", [0]),
        ("psp", "bins", "3"),
        ("aspp", "rates", [12, 2.5]),
        ("aspp", "rates", 12),
        ("dilated", "branch_channels", 0),
        ("ccnet", "rounds", 0),
        ("gcnet", "reduction", "4"),
        ("a2", "pair_channels", 10**6),
        ("ema", "steps", 0),
        ("dagrnn", "branch_channels", 0),
        ("psa", "key_channels", 1.5),
        ("crf", "steps", 0),
    ],
)
def test_bad_options(name, option, value):
    with pytest.raises(UserError, match=rf"{option}: .*; give a (list of )?whole numbers? from 1 "):
        make(name, **{option: value})


def test_occlusion_takes_sources_from_ccnet_not_targets():
    """`target_context` gives neurons that are nobody's context one of their own."""
    block, x = make("ccnet").double(), random_map(4, 5)
    counts = torch.ones(2, 20, dtype=torch.bool)
    counts[:, 7] = False
    found = block.target_context(x, None, counts)
    rows = block.coefficient_rows(x, None, torch.arange(20), counts)
    assert (rows[..., 7] == 0).all()
    torch.testing.assert_close(found, rows @ block.values(x))
    assert (found[:, 7].abs() > 1e-3).any()


def swept(entered, weight, counts, down, right):
    """One sweep, neuron by neuron: entered (B, d, H, W), counts (B, H, W)."""
    height, width = entered.shape[-2:]
    state = {}
    for row in range(height)[:: 1 if down else -1]:
        for col in range(width)[:: 1 if right else -1]:
            up, left = row - (1 if down else -1), col - (1 if right else -1)
            before = [state[at] for at in ((up, col), (row, left), (up, left)) if at in state]
            arriving = sum(before, torch.zeros_like(entered[:, :, 0, 0]))
            found = torch.tanh(entered[:, :, row, col] + arriving @ weight)
            state[row, col] = found * counts[:, None, row, col]
    rows = [torch.stack([state[row, col] for col in range(width)], -1) for row in range(height)]
    return torch.stack(rows, -2)


@pytest.mark.parametrize("size", [(4, 5), (5, 3), (1, 6), (6, 1), (1, 1)])
def test_dagrnn_is_four_sweeps(size):
    """By anti-diagonals as neuron by neuron, gradients too; neurons without a state are borders."""
    block, x = make("dagrnn").double(), random_map(*size).requires_grad_()
    torch.nn.init.normal_(block.recur, std=0.4)
    counts = torch.rand(2, *size) < 0.8
    entered = block.enter(x).chunk(4, 1)
    corners = [(True, True), (True, False), (False, True), (False, False)]
    expected = torch.cat(
        [swept(entered[k], block.recur[k], counts, *corners[k]) for k in range(4)], 1
    )
    found = block.branches(x, None, counts.flatten(1))
    torch.testing.assert_close(found, expected)
    leaves, grad = [x, block.recur, block.enter.weight], torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, grad, retain_graph=True),
        torch.autograd.grad(expected, leaves, grad),
    )


@pytest.mark.parametrize("masked", [False, True])
def test_dagrnn_by_vmap(masked):
    """Gradients of each image, and the sweeps of several networks, as one by one."""
    block, x = make("dagrnn").double(), random_map(4, 3)
    mask = torch.rand(2, 1, 4, 3) < 0.8
    weights = dict(block.named_parameters())

    def loss(weights, image, counts):
        options = {"mask": counts} if masked else {}
        found = torch.func.functional_call(block, weights, (image.unsqueeze(0),), options)
        return found.square().sum()

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x, mask)
    for image in range(2):
        alone = torch.func.grad(loss)(weights, x[image], mask[image])
        for name in weights:
            torch.testing.assert_close(together[name][image], alone[name])


def test_dagrnn_sees_the_whole_map():
    block = make("dagrnn").double()
    assert reached(block, 9, 3, 6).all()


def test_psa_reads_maps_of_places():
    """Collect by the target's map, distribute by the source's, each read bilinearly."""
    block, x, grid = make("psa").double(), random_map(3, 4), 5
    for branch in (block.collect, block.distribute):
        torch.nn.init.normal_(branch[-1].weight)
    scores = [branch(x).unflatten(1, (grid, grid)) for branch in (block.collect, block.distribute)]

    def read(branch, at, there):
        """The score that the neuron at `at` gives the place of the one at `there`."""
        (row, col), (other_row, other_col) = at, there
        own = scores[branch][:, :, :, row, col].unsqueeze(1)  # (B, 1, grid, grid)
        point = torch.tensor([(other_col - col) / 4, (other_row - row) / 3], dtype=torch.float64)
        return F.grid_sample(own, point.expand(2, 1, 1, 2), align_corners=True).flatten()

    everywhere = [(row, col) for row in range(3) for col in range(4)]
    collected = [torch.stack([read(0, i, j) for j in everywhere], -1) for i in everywhere]
    distributed = [torch.stack([read(1, j, i) for j in everywhere], -1) for i in everywhere]
    matrices = [torch.stack(one, 1).softmax(-1) for one in (collected, distributed)]
    torch.testing.assert_close(block.coefficients(x), (matrices[0] + matrices[1]) / 2)
    orders = block.coefficients(x)[0].argsort(-1)
    assert (orders != orders[0]).any()


@pytest.mark.parametrize("masked", [False, True])
def test_crf_is_mean_field(masked):
    """Against the kernels written out, pair by pair."""
    block, x = make("crf", steps=3).double(), random_map(4, 5)
    net = block.classifier
    for parameter in (net.feature.weight, net.kernel_weight, net.compatibility):
        torch.nn.init.normal_(parameter)
    counts = torch.rand(2, 20) < (0.7 if masked else 1.1)
    unary = F.conv2d(x, net.weight, net.bias).flatten(2).mT
    feature, places = net.feature(x).flatten(2).mT, torch.cartesian_prod(*map(torch.arange, (4, 5)))
    kernels = []
    for reach, is_far in zip(net.reach.exp(), (False, True), strict=True):
        apart = (places[:, None] - places).square().sum(-1) / reach**2
        apart = apart + is_far * (feature[:, :, None] - feature[:, None]).square().sum(-1)
        kernel = (-0.5 * apart).exp() * counts.unsqueeze(1)
        kernels.append(kernel / kernel.sum(-1, keepdim=True))
    share = unary.softmax(-1)
    for _ in range(3):
        message = sum(
            weight * (one @ share) for one, weight in zip(kernels, net.kernel_weight, strict=True)
        )
        expected = unary + message @ net.compatibility.T
        share = expected.softmax(-1)
    found = net(x, counts if masked else None)
    torch.testing.assert_close(found.flatten(2).mT, expected)


def test_the_loss_of_crf_is_that_of_its_refined_scores():
    block, x = make("crf"), torch.randn(2, 6, 4, 5)
    with auxiliary_scores(block) as gathered:
        block(x)
    ((share, scores),) = gathered
    assert share == 0.4
    assert not torch.allclose(scores, F.conv2d(x, block.classifier.weight, block.classifier.bias))
    scores.square().sum().backward()
    assert (block.classifier.compatibility.grad != 0).any()


def test_crf_keeps_what_it_knows_of_classes():
    net = make("crf").classifier
    torch.nn.init.normal_(net.compatibility)
    before = net.compatibility.clone()
    net.replace_classes([2, None, 0])
    assert net(torch.randn(1, 6, 4, 5)).shape == (1, 3, 4, 5)
    assert torch.equal(net.compatibility[[0, 0, 2], [0, 2, 2]], before[[2, 2, 0], [2, 0, 0]])
    assert torch.equal(net.compatibility[1], torch.tensor([0.0, 1.0, 0.0]))
