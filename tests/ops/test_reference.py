"""The ground truth itself: against hand-made numbers, and against the paper's own formulas."""

import pytest
import torch

from scaseg.ops.dispatch import aggregate
from scaseg.ops.reference import (
    gradient_of_coefficients,
    gradient_of_features,
    pair_scores,
    reference_context,
    replicate_and_concatenate,
)


def test_every_place_of_the_pair_map_holds_its_pair():
    target, source = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    pairs = replicate_and_concatenate(target, source)
    assert pairs.shape == (2, 8, 3, 5)
    for i in range(3):
        for j in range(5):
            assert torch.equal(pairs[:, :, i, j], torch.cat([target[:, i], source[:, j]], -1))


def test_pair_scores_split_into_target_and_source():
    """The key fact: w . [f_i ; f_j] + b = s_i + t_j."""
    features = torch.randn(2, 7, 6, dtype=torch.float64)
    weight, bias = torch.randn(3, 12, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    scores = pair_scores(features, features, weight, bias)
    s = features @ weight[:, :6].T + bias
    t = features @ weight[:, 6:].T
    torch.testing.assert_close(scores, s.unsqueeze(2) + t.unsqueeze(1))


@pytest.mark.parametrize(
    ("activation", "phi"),
    [
        ("identity", lambda z: z),
        ("exp", torch.exp),
        ("relu", torch.relu),
        ("sigmoid", torch.sigmoid),
        ("softplus", lambda z: torch.log1p(torch.exp(z))),
    ],
)
def test_by_hand(activation, phi):
    """Three neurons, written out."""
    s, t = torch.tensor([[0.5, 1.0, 2.0]]), torch.tensor([[0.1, 0.7, -0.4]])
    c = torch.tensor([[[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]]])
    found = reference_context(c, s, t, activation=activation)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        a = [phi(s[0, i] + t[0, j]) for j in others]
        expected = (a[0] * c[0, others[0]] + a[1] * c[0, others[1]]) / (a[0] + a[1])
        torch.testing.assert_close(found[0, i], expected)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_autograd_agrees_with_the_papers_gradients(n):
    """Equations 3 and 4, term by term, through the operator that users call."""
    batch, width, out = 2, 4, 3
    x = torch.randn(batch, n, width, dtype=torch.float64, requires_grad=True)
    a = torch.rand(batch, n, n, dtype=torch.float64)
    a.diagonal(dim1=1, dim2=2).fill_(1)  # a_ii = 1
    a.requires_grad_()
    w_d, w_c = torch.randn(2, out, width, dtype=torch.float64)
    h = x @ w_d.T + aggregate(x @ w_c.T, a)
    grad = torch.randn_like(h)
    grad_x, grad_a = torch.autograd.grad(h, (x, a), grad)
    torch.testing.assert_close(grad_x, gradient_of_features(grad, a.detach(), w_d, w_c))
    expected = gradient_of_coefficients(grad, a.detach(), x.detach(), w_c)
    torch.testing.assert_close(grad_a, expected)


def test_aggregate_agrees_with_the_reference():
    values = torch.randn(2, 9, 4, dtype=torch.float64)
    s, t = torch.randn(2, 2, 9, dtype=torch.float64)
    mask = torch.rand(2, 9) < 0.7
    for exclude_self in (True, False):
        matrix = torch.sigmoid(s.unsqueeze(2) + t.unsqueeze(1))
        torch.testing.assert_close(
            aggregate(values, matrix, exclude_self=exclude_self, source_mask=mask),
            reference_context(values, s, t, exclude_self=exclude_self, source_mask=mask),
        )


def test_aggregate_shares_one_matrix_among_a_batch():
    values, matrix = torch.randn(3, 5, 2), torch.rand(1, 5, 5)
    together = aggregate(values, matrix)
    for image in range(3):
        torch.testing.assert_close(together[image], aggregate(values[image : image + 1], matrix)[0])
