"""Inputs of the operator, and how two results are compared: shared by the tests of ops."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.dispatch import selective_context
from scaseg.ops.reference import reference_context

ACTIVATION_NAMES = tuple(ACTIVATIONS)
SMOOTH = ("sigmoid", "softplus")
EXACT = ("identity", "exp", "relu")
ARGUMENTS = ("values", "target_score", "source_score", "channel_weight")
NAMES = ("context", *(f"grad {name}" for name in ARGUMENTS))


@dataclass(frozen=True)
class Case:
    """Arguments of selective_context, all but the backend, and a gradient of the result."""

    values: Tensor
    target_score: Tensor
    source_score: Tensor
    channel_weight: Tensor
    grad: Tensor
    activation: str = "sigmoid"
    exclude_self: bool = True
    source_mask: Tensor | None = None

    def to(self, dtype: torch.dtype) -> "Case":
        changed = {name: getattr(self, name).to(dtype) for name in (*ARGUMENTS, "grad")}
        return replace(self, **changed)

    def options(self) -> dict[str, object]:
        return {
            "activation": self.activation,
            "exclude_self": self.exclude_self,
            "source_mask": self.source_mask,
        }

    def context(self, backend: str, **changes: object) -> Tensor:
        """Compute the context, some arguments changed."""
        arguments = {name: getattr(self, name) for name in ARGUMENTS} | self.options() | changes
        return selective_context(**arguments, backend=backend)


def random_case(
    n: int,
    *,
    batch: int = 1,
    channels: int = 1,
    features: int = 5,
    targets: int | None = None,
    masked: bool = False,
    scale: float = 1.0,
    activation: str = "sigmoid",
    dtype: torch.dtype = torch.float64,
) -> Case:
    """Draw a case; `targets` makes the targets another set than the n sources."""
    rows = n if targets is None else targets
    shape = (channels,) if channels > 1 else ()
    return Case(
        values=torch.randn(batch, n, features, dtype=torch.float64),
        target_score=scale * torch.randn(batch, rows, *shape, dtype=torch.float64),
        source_score=scale * torch.randn(batch, n, *shape, dtype=torch.float64),
        channel_weight=0.1 + torch.rand(channels, dtype=torch.float64),
        grad=torch.randn(batch, rows, features, dtype=torch.float64),
        activation=activation,
        exclude_self=targets is None,
        source_mask=torch.rand(batch, n) < 0.6 if masked else None,
    ).to(dtype)


def outputs_and_grads(case: Case, backend: str, **options: object) -> dict[str, Tensor]:
    """Run one backend ("reference" included) forward and backward."""
    given = {name: getattr(case, name) for name in ARGUMENTS}
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in given.items()}
    if backend == "reference":
        context = reference_context(**leaves, **case.options())
    else:
        context = case.context(backend, **leaves, **options)
    grads = torch.autograd.grad(context, list(leaves.values()), case.grad)
    return dict(zip(NAMES, (context.detach(), *grads), strict=True))


def relative_error(found: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """max|error| / max|expected|, both compared in float64."""
    found, expected = found.double(), expected.double()
    scale = max(float(expected.abs().max()), floor, 1e-300)
    return float((found - expected).abs().max()) / scale


def assert_agree(
    found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float, note: object = ""
) -> None:
    # where a gradient is zero by symmetry (a single channel's weight cancels), what is left of it
    # is rounding: compare with what the gradients of this problem amount to
    floor = 1e-3 * max(float(expected[name].abs().max()) for name in NAMES[1:4])
    for name in NAMES:
        error = relative_error(found[name], expected[name], floor)
        assert error <= tolerance, f"{name}: {error:.1e} > {tolerance:.0e} {note}"
