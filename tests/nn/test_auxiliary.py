"""Classifiers within a network that are trained with a loss of their own."""

import copy

import torch
from torch import nn

from scaseg.nn.auxiliary import AuxiliaryClassifier, auxiliary_scores


def test_scores_are_gathered_while_asked_for():
    network = nn.Sequential(
        AuxiliaryClassifier(3, 3, loss_share=0.2), nn.ReLU(), AuxiliaryClassifier(3, 2)
    )
    x = torch.randn(1, 3, 4, 5)
    network(x)
    with auxiliary_scores(network) as gathered:
        out = network(x)
    network(x)
    assert [share for share, _ in gathered] == [0.2, 0.4]
    assert torch.equal(gathered[0][1], network[0](x))
    assert torch.equal(gathered[1][1], out)


def test_nothing_stays_behind():
    """A hook that stays would be copied with the network, and hold on to its scores."""
    network = AuxiliaryClassifier(3, 2)
    with auxiliary_scores(network) as gathered:
        twin = copy.deepcopy(network)
        network(torch.randn(1, 3, 4, 5))
    network(torch.randn(1, 3, 4, 5))
    assert len(gathered) == 1
    assert not network._forward_hooks
    assert twin.loss_share == network.loss_share
