"""Chebyshev interpolation: how many nodes are enough, the nodes, and the basis.

ops/README.md, "Smooth activations", proves the bound that `node_count` inverts.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# Largest interpolation error, relative to the largest value (and, for the row sums, to the row),
# that the number of nodes is chosen for: a proven bound, met with three digits to spare in
# practice (ops/README.md), so that rounding, not interpolation, sets the accuracy.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def error_bound(half_range: float, nodes: int) -> float:
    """Bound the error of interpolating context and log row sum at `nodes` points."""
    return min(size * rho ** (1 - nodes) for rho, size in _ellipses(half_range))


def node_count(half_range: float, tolerance: float, at_most: int = 1 << 20) -> int:
    """Return how many nodes meet the tolerance: the fewest, about R log(R^2/tol) / pi, rounded up.

    Rounded to 4k + 3: the table gets one more row, and matrix products like multiples of four.
    Where more than `at_most` would be needed, however wide the range, it is `at_most`.
    """
    if not half_range < at_most:  # infinite and NaN ranges too; a node for every 1/pi is too few
        return at_most
    enough = min(
        1 + math.ceil(math.log(size / tolerance) / math.log(rho))
        for rho, size in _ellipses(half_range)
    )
    return min(enough + (3 - enough) % 4, at_most)


# Dynamo would trace these floats as symbols (dynamic=True) and fail on a guard of its own. This is
# torch.compiler.assume_constant_result without its import of torch._dynamo, which takes seconds.
node_count._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _ellipses(half_range: float) -> list[tuple[float, float]]:
    """Ellipses (rho, size) on which the error is at most size * rho ** (1 - nodes).

    Context and log row sum are analytic in the strip |Im s| < pi, whatever the scores of the
    sources. On the ellipse through i*y the mean of values of size 1 is at most 1 / cos(y/2), and
    the log row sum strays from its middle by at most the last term below.
    """
    found = []
    for step in range(4, 64):
        y = math.pi * step / 64
        rho = (y + math.sqrt(y * y + half_range * half_range)) / half_range
        mean = 1 / math.cos(y / 2)
        log_sum = half_range * (rho + 1 / rho) / 2 + math.log(mean) + y
        found.append((rho, 4 * max(mean, log_sum) / (rho - 1)))
    return found


def chebyshev_nodes(nodes: int, like: Tensor) -> Tensor:
    """Return the zeros of T_nodes in [-1, 1], shape (nodes,)."""
    k = torch.arange(nodes, dtype=like.dtype, device=like.device)
    return torch.cos((k + 0.5) * (math.pi / nodes))


def cardinal_basis(x: Tensor, nodes: int) -> Tensor:
    """Evaluate at x in [-1, 1] the polynomials that are 1 at one node and 0 at the others.

    (...) -> (..., nodes): basis @ samples interpolates what was sampled at the nodes.
    """
    return CardinalBasis.apply(x, nodes)


class CardinalBasis(Function):
    """The barycentric formula: w_k / (x - x_k), divided by the sum over k."""

    @staticmethod
    def forward(x: Tensor, nodes: int) -> Tensor:
        k = torch.arange(nodes, dtype=x.dtype, device=x.device)
        weight = torch.sin((k + 0.5) * (math.pi / nodes)) * (1 - 2 * (k % 2))
        # beyond the range lie only scores that break a promise: they count as being at its end
        distance = x.clamp(-1, 1).unsqueeze(-1) - chebyshev_nodes(nodes, x)
        # on a node: that term swamps all others, as it should; so little is not added everywhere,
        # where it is rounded off, because the ONNX exporter leaves such additions out
        terms = weight / distance.masked_fill_(distance == 0, torch.finfo(x.dtype).tiny ** 0.5)
        return terms.div_(terms.sum(-1, keepdim=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.nodes = inputs
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)  # a first backward pass asks for none: autograd.py

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        if grad is None:
            return None, None
        (x,) = ctx.saved_tensors
        # near a node the formula's derivative is a difference of huge terms; T'_m is not
        grad = grad @ _transform(ctx.nodes, grad).T @ _derivative(ctx.nodes, grad)
        return (grad * ChebyshevBasis.apply(x, ctx.nodes)).sum(-1), None


class ChebyshevBasis(Function):
    """T_0 .. T_{nodes-1} at x: (...) -> (..., nodes); for derivatives of the cardinal basis."""

    @staticmethod
    def forward(x: Tensor, nodes: int) -> Tensor:
        degree = torch.arange(nodes, dtype=x.dtype, device=x.device)
        return torch.cos(torch.acos(x.clamp(-1, 1)).unsqueeze(-1) * degree)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.nodes = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        # d cos(m acos x) is 0/0 at the ends; T'_m written in the T_j is a polynomial everywhere
        basis = ChebyshevBasis.apply(x, ctx.nodes)
        return ((grad @ _derivative(ctx.nodes, grad)) * basis).sum(-1), None


def _transform(nodes: int, like: Tensor) -> Tensor:
    """Return the matrix that turns samples at the nodes into Chebyshev coefficients."""
    k = torch.arange(nodes, device=like.device)
    # reduce the angle in whole numbers: m * k would lose digits for many nodes
    angle = ((k.unsqueeze(-1) * (2 * k + 1)) % (4 * nodes)).to(like.dtype)
    matrix = torch.cos(angle * (math.pi / (2 * nodes))) * (2 / nodes)
    return torch.where(k.unsqueeze(-1) == 0, matrix / 2, matrix)


def _derivative(nodes: int, like: Tensor) -> Tensor:
    """Return D with T'_m = sum_j D[m, j] T_j."""
    m = torch.arange(nodes, device=like.device).unsqueeze(-1)
    j = torch.arange(nodes, device=like.device)
    coefficient = torch.where(j == 0, m, 2 * m).to(like.dtype)
    return coefficient.masked_fill((j >= m) | ((m - j) % 2 == 0), 0)
