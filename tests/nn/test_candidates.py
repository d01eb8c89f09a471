"""What defines each of the contexts that were tried against the average."""

import math

import pytest
import torch
import torch.nn.functional as F

from scaseg.errors import UserError
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.ops.dispatch import selective_context
from tests.nn.blocks import make

FACTORED = ["balanced", "gated", "position", "agents", "cells", "object", "object, by area"]
FACTORED += ["a2", "ema"]


def random_map(*size):
    return torch.randn(2, 6, *size, dtype=torch.float64)


@pytest.mark.parametrize("name", FACTORED)
def test_factors_are_shares_and_give_the_dense_form(name):
    """Of the channels for each target, of the sources in each channel; the order is a target's."""
    block, x = make(name).double(), random_map(5, 7)
    mask = torch.rand(2, 35) < 0.7
    channel_share, source_share = block.factors(x, None, mask)
    ones = torch.ones(2, 35, dtype=torch.float64)
    torch.testing.assert_close(channel_share.sum(-1), ones)
    torch.testing.assert_close(source_share.sum(1), torch.ones_like(source_share.sum(1)))
    assert (source_share[~mask] == 0).all()
    dense = channel_share @ source_share.mT @ block.values(x)
    torch.testing.assert_close(block.target_context(x, None, mask), dense)
    assert block.neuron_selective
    orders = block.coefficients(x)[0].argsort(-1)
    assert (orders != orders[0]).any()


def test_each_head_is_an_sca_of_its_own():
    block, x = make("heads", heads=3).double(), random_map(4, 5)
    s, t = block.predictor(x)
    values = block.values(x)
    parts = [
        selective_context(values[..., 2 * h : 2 * h + 2], s[..., h], t[..., h], backend="dense")
        for h in range(3)
    ]
    expected = block.combine(x, torch.cat(parts, -1))
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-6)
    shares = torch.sigmoid(s.unsqueeze(2) + t.unsqueeze(1))  # (B, target, source, heads)
    shares = shares * ~torch.eye(20, dtype=torch.bool).unsqueeze(-1)
    shares = (shares / shares.sum(2, keepdim=True)).mean(-1)
    everyone = torch.arange(20)
    torch.testing.assert_close(block.shares(x, everyone), shares)


def test_one_head_is_sca():
    one, sca = make("heads", heads=1), make("sca")
    sca.load_state_dict(one.state_dict())
    x = torch.randn(2, 6, 9, 9)
    torch.testing.assert_close(one(x), sca(x))


def test_heads_that_do_not_divide_the_channels():
    with pytest.raises(UserError, match=r"heads: 4 for 6 channels; give a divisor"):
        make("heads", heads=4)
    with pytest.raises(UserError, match=r"activation: identity with several heads; use"):
        make("heads", activation="identity")


def test_no_channel_can_win_by_being_sharp():
    """One that points to a single source has the same sum as the others, so targets choose alike.

    With one denominator for all channels, as `sca` with exp has, it would win for every target.
    """
    block, x = make("balanced").double(), random_map(5, 5)
    before = block.factors(x, None, None)
    with torch.no_grad():
        block.temperature[1] -= 3  # of the sources
    after = block.factors(x, None, None)
    assert before[1].max() > 2 * after[1].max()
    assert torch.equal(after[0], before[0])


def test_no_feature_can_win_by_being_large():
    block, x = make("balanced").double(), random_map(5, 5)
    before = block.factors(x, None, None)
    with torch.no_grad():
        for tensor in (*block.query.parameters(), *block.key.parameters(), block.prototypes):
            tensor *= 7
    for found, expected in zip(block.factors(x, None, None), before, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_closed_gate_is_the_average_an_open_one_the_selection():
    block, x = make("gated").double(), random_map(4, 6)
    average = block.combine(x, block.values(x).mean(1, keepdim=True))
    selected = make("balanced").double()
    state = block.state_dict()
    selected.load_state_dict({name: state[name] for name in selected.state_dict()})
    block.gate.bias.data.fill_(-50)
    torch.testing.assert_close(block(x), average)
    block.gate.bias.data.fill_(50)
    torch.testing.assert_close(block(x), selected(x))


def test_scores_are_dropped_in_training_only():
    block, x = make("gated", score_dropout=1.0).double(), random_map(4, 6)
    source_share = block.factors(x, None, None)[1]
    torch.testing.assert_close(source_share, torch.full_like(source_share, 1 / 24))  # even
    assert block.eval().factors(x, None, None)[1].std() > 1e-3
    some = make("gated", score_dropout=0.5).double()
    assert not torch.equal(some(x), some(x))
    with pytest.raises(UserError, match=r"score_dropout: 2; give a number from 0 to 1"):
        make("gated", score_dropout=2)


def test_identities_are_dropped_in_training_only():
    block, x = make("dot", identity_dropout=0.5).double(), random_map(8, 9)
    whole = block.eval()(x)
    context = block.target_context(x, None, None).mT.unflatten(2, (8, 9))
    share = (block.train()(x) - context) / (whole - context)  # of each neuron's own features
    torch.testing.assert_close(share, share[:, :1].round().expand_as(share))
    assert set(share.round().unique().tolist()) == {0, 2}
    assert torch.equal(block.eval()(x), whole)
    with pytest.raises(UserError, match=r"identity_dropout: 2; give a number from 0 to 1"):
        make("dot", identity_dropout=2)


def test_sharpness_bounds_how_much_one_source_counts_more_than_another():
    block, x = make("dot", sharpness=0.7).double(), 50 * random_map(8, 9)
    rows = block.coefficients(x)
    cosine = torch.cosine_similarity(
        block.query(x).flatten(2).mT.unsqueeze(2), block.key(x).flatten(2).mT.unsqueeze(1), dim=-1
    )
    torch.testing.assert_close(rows, (0.7 * cosine).softmax(-1))
    assert (rows.amax(-1) / rows.amin(-1)).max() <= math.exp(2 * 0.7)
    even = make("dot", sharpness=0).double().coefficients(x)
    torch.testing.assert_close(even, torch.full_like(even, 1 / 72))
    with pytest.raises(UserError, match=r"sharpness: -1; give a number >= 0"):
        make("dot", sharpness=-1)


def test_only_position_knows_where_a_neuron_lies():
    """Others give the neurons of a mirrored map what they had; it must not."""
    x = random_map(4, 5)

    def moves(block):
        return (block(x.flip(-1)).flip(-1) - block(x)).abs().max() > 1e-3

    assert not moves(make("balanced").double())
    for side in range(2):  # by its queries alone, and by its keys alone
        block = make("position").double()
        torch.nn.init.zeros_(block.place.weight)
        torch.nn.init.normal_(block.place.weight.chunk(2)[side])
        assert moves(block)


def test_a_cell_without_neurons_is_left_out():
    block, x = make("agents").double(), random_map(6, 6)
    mask = torch.ones(2, 6, 6, dtype=torch.bool)
    mask[0, :2, :2] = False  # the first of nine cells
    channel_share = block.factors(x, None, mask.flatten(1))[0]
    assert (channel_share[0, :, 0] == 0).all()
    assert (channel_share[1] > 0).all()


def test_a_target_takes_from_the_classes_that_it_wants():
    """With a sure classifier, a class's channel is its mean; without wishes, all is the average."""
    block, x = make("object, by area", classes=3).double(), random_map(4, 6)
    labels = torch.randint(2, (2, 24))  # class 2 is not in the image
    block.classifier.forward = lambda _: (
        99.0 * F.one_hot(labels, 3).double().mT.unflatten(2, (4, 6))
    )
    channel_share, source_share = block.factors(x, None, None)
    for index, label in enumerate((0, 1)):
        members = (labels[0] == label).double()
        torch.testing.assert_close(source_share[0, :, index], members / members.sum())
    assert (channel_share[..., 2] < 1e-9).all()
    block.by_area = False  # as published: every class has its say, there or not
    assert (block.factors(x, None, None)[0][..., 2] > 1e-3).all()
    torch.testing.assert_close(block.factors(x, None, None)[1][..., :2], source_share[..., :2])
    block.by_area = True
    torch.nn.init.zeros_(block.query.weight)
    torch.nn.init.zeros_(block.query.bias)
    torch.testing.assert_close(block(x), block.combine(x, block.values(x).mean(1, keepdim=True)))


def test_the_average_with_an_auxiliary_loss_is_the_average():
    """The control for `object`: nothing but the loss is added, and in training only."""
    plain, control = make("average"), make("average", auxiliary=True, classes=3)
    control.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 6, 4, 5)
    with auxiliary_scores(control) as gathered:
        assert torch.equal(control(x), plain(x))
        assert torch.equal(control.eval()(x), plain(x))
    assert [scores.shape for _, scores in gathered] == [(2, 3, 4, 5)]


class OnGpu(torch.Tensor):
    """A tensor that says that it lies on a GPU."""

    is_cuda = True


def test_the_auxiliary_loss_is_there_where_a_gpu_averages_first():
    control = make("average", auxiliary=True, classes=3)
    with auxiliary_scores(control) as gathered:
        control(torch.randn(2, 6, 4, 5).as_subclass(OnGpu))
    assert len(gathered) == 1


def spread_scores(block):
    torch.nn.init.normal_(block.score.weight, std=0.7)
    return block


def test_cells_without_queries_are_sca_with_exp():
    """With own entries; whatever sources are left out."""
    block, x = spread_scores(make("cells")).double(), random_map(5, 7)
    torch.nn.init.zeros_(block.query.weight)
    torch.nn.init.zeros_(block.query.bias)
    mask = torch.rand(2, 5, 7) < 0.6
    weight = block.score(x).exp() * mask.unsqueeze(1)
    expected = (weight / weight.sum((2, 3), keepdim=True)).flatten(2).expand(-1, 35, -1)
    found = block.shares(x, torch.arange(35), mask=mask)
    torch.testing.assert_close(found, expected)


def test_cells_of_one_neuron_are_dot_with_a_score():
    block, x = spread_scores(make("cells", grid=4)).double(), random_map(4, 4)
    query, key = (layer(x).flatten(2).mT for layer in (block.query, block.key))
    score = query @ key.mT / 2 + block.score(x).flatten(2)  # sqrt(d) = 2
    torch.testing.assert_close(block.coefficients(x), score.softmax(-1))


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_no_score_of_cells_is_too_large(size):
    """Cells whose sources vanish beside another's have no share, and gradients stay finite."""
    block, x = spread_scores(make("cells")), torch.randn(2, 6, 9, 9, requires_grad=True)
    block.score.weight.data *= size
    found = block(x)
    found.square().sum().backward()
    assert found.isfinite().all()
    for one in (x, *block.parameters()):
        assert one.grad.isfinite().all()


def test_an_empty_cell_has_no_share_even_where_others_repel():
    block, x = make("cells").double(), torch.ones(2, 6, 5, 7, dtype=torch.float64)
    torch.nn.init.constant_(block.key.weight, 10)
    torch.nn.init.constant_(block.query.weight, -10)
    mask = torch.zeros(2, 35, dtype=torch.bool)
    mask[:, 3] = True
    rows = block.coefficient_rows(x, None, torch.arange(35), mask)
    torch.testing.assert_close(rows, mask.to(rows).unsqueeze(1).expand_as(rows))
