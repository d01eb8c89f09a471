"""Tests of the Triton kernels, run by its interpreter (here) and on a GPU (tests/gpu)."""

from dataclasses import replace

import torch

from scaseg.nn.selective_context import SelectiveContext
from tests.nn.blocks import make
from tests.ops.cases import NAMES, outputs_and_grads, random_case, relative_error

try:
    from triton.runtime import interpreter
except ImportError:
    interpreter = None


if interpreter is not None:
    # Triton 3.6 converts arrays of one element to a number as NumPy 2.4 no longer does
    patch_tensor = interpreter._patch_lang_tensor

    def patch_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_index

KINDS = [
    "sca", "sca, 3 channels", "sca, softplus", "sca, exp", "sca, identity", "sca, relu"
]  # fmt: skip


def moved(case, device):
    """The case on a device."""
    tensors = {k: v.to(device) for k, v in case.__dict__.items() if isinstance(v, torch.Tensor)}
    return replace(case, **tensors)


def check_operator(device, activation, n, dtype=torch.float32, bound=5.0, **options):
    """Values and gradients of a random case cost no more than dense in the same dtype."""
    scale, lift = options.pop("scale", 1.0), options.pop("lift", 0.0)
    case = random_case(n, activation=activation, dtype=torch.float64, **options)
    case.target_score.add_(lift)
    for score in (case.target_score, case.source_score):
        score.mul_(scale).clamp_(-bound, bound)
    case = case.to(dtype)
    exact = outputs_and_grads(case.to(torch.float64), "reference")
    dense = outputs_and_grads(case, "dense")
    if case.source_mask is not None:  # what is masked may be anything
        case.values[~case.source_mask] = torch.nan
        case.source_score[~case.source_mask] = torch.nan
    found = outputs_and_grads(moved(case, device), "triton", score_bound=bound)
    assert found["context"].dtype == dtype
    channels = len(case.channel_weight)
    largest = max(float(exact[name].abs().max()) for name in NAMES[1:4])
    # Triton's interpreter cuts bfloat16 off instead of rounding it
    times = 4 if dtype == torch.bfloat16 and device == "cpu" else 2
    for name in NAMES if channels > 1 else NAMES[:-1]:
        # gradients that are zero by symmetry are rounding: beside the largest of this problem
        floor = 1e-2 * largest if name != "context" else 0.0
        if activation in ("identity", "relu"):  # their two sums are rounded each by itself
            floor *= 10
        # bfloat16 values meet coefficients of 16 bits on a GPU
        floor, spare = (largest, 1e-4) if dtype == torch.bfloat16 else (floor, 1e-5)
        allowed = times * relative_error(dense[name], exact[name], floor) + spare
        error = relative_error(found[name].cpu(), exact[name], floor)
        assert error <= allowed, f"{name}: {error:.1e} > {allowed:.1e}"


def check_block(device, name, size=(7, 9), masked=False, channels=6, **options):
    """A block by kernels is the same block layer by layer: values, and every gradient."""
    block = make(name, channels, backend="dense", **options)
    for parameter in block.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    if block.predictor.activation in ("identity", "relu"):  # around 0 rows vanish, in float32 too
        torch.nn.init.ones_(block.predictor.score.bias)
    x = torch.randn(2, channels, *size)
    mask = torch.rand(2, *size) < 0.7 if masked else None
    grad = torch.randn(2, block.out_channels, *size)
    results = []
    for backend, where in (("dense", "cpu"), ("triton", device)):
        block.backend = backend
        block = block.to(where)
        leaf = x.to(where).requires_grad_()
        out = block(leaf, mask=None if mask is None else mask.to(where))
        grads = torch.autograd.grad(out, [leaf, *block.parameters()], grad.to(where))
        results.append([out.detach().cpu(), *(one.cpu() for one in grads)])
    names = ["out", "x", *(name for name, _ in block.named_parameters())]
    for what, expected, found in zip(names, *results, strict=True):
        floor = 1e-2 * float(results[0][2].abs().max())
        assert relative_error(found, expected, floor) < 2e-5, what
    assert isinstance(block, SelectiveContext)
