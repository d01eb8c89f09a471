"""A model as a graph of tensor operations whose batch, height and width stay free."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch.export import Dim, ExportedProgram

from scaseg.errors import UserError, one_line
from scaseg.models.folding import fold_batch_norms
from scaseg.models.segmenter import Segmenter
from scaseg.nn.context import Context
from scaseg.nn.predictor import DependencyPredictor
from scaseg.ops.activation import ACTIVATIONS

# The example that is traced. From a batch of one, ONNX Runtime took buffers of the wrong size at
# batch 2; sides that differ, and are no multiple of the stride, leave nothing to coincidence.
EXAMPLE = (2, 45, 70)


def check_exportable(model: Segmenter, kind: str) -> None:
    """Refuse what is known not to work, before seconds are spent on trying."""
    for module in model.modules():
        if isinstance(module, Context) and module.not_exported:
            problem = f"context {model.config.context} has no graph for all sizes"
            remedy = "train a model with another context"
            raise UserError(model.origin, problem, remedy, module.not_exported)
        if not isinstance(module, DependencyPredictor):
            continue
        form = ACTIVATIONS[module.activation].form
        if form == "interpolated" and module.score_bound is None:
            problem = "its scores have no bound, so that its graph would depend on the image"
            remedy = "train it with context_options.score_bound (5 is usual)"
            raise UserError(model.origin, problem, remedy)
        if form in ("sorted", "affine") and kind == "onnx":
            problem = f"activation {module.activation} needs a binary search, which ONNX has not"
            remedy = "use torch-export, or train it with sigmoid, softplus or exp"
            raise UserError(model.origin, problem, remedy)


def prepare(model: Segmenter) -> Segmenter:
    """Copy a model for tracing: on the CPU, in eval mode, float32, norms folded, in linear form."""
    found = copy.deepcopy(model).cpu().float()
    fold_batch_norms(found)
    # the layout of an eager CPU is none of a graph's business
    found.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    # never n x n coefficients, as trained or not; what is out of place is traced in half the time
    for name, value in (("backend", "linear"), ("inplace", False)):
        for module in found.modules():
            if hasattr(module, name):
                setattr(module, name, value)
    return found.requires_grad_(False)


def trace(model: Segmenter) -> ExportedProgram:
    """Trace a model from `prepare`; UserError where its context has what a graph cannot hold."""
    batch, height, width = EXAMPLE
    images = torch.zeros(batch, model.config.in_channels, height, width)
    free = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    with quiet(), torch.no_grad():
        try:
            return torch.export.export(model, (images,), dynamic_shapes={"images": free})
        except Exception as error:  # whatever tracing comes upon in a context of a user's own
            raise cannot(model, "torch.export", error) from error


def cannot(model: Segmenter, tool: str, error: BaseException) -> UserError:
    """The error for a model that a tool does not take; the innermost cause says why."""
    while error.__cause__ is not None:
        error = error.__cause__
    detail = one_line(str(error).strip().partition("\n")[0] or type(error).__name__, 200)
    problem = f"its context {model.config.context} cannot be exported"
    remedy = "use another context, or write it in operations that can be"
    return UserError(model.origin, problem, remedy, f"{tool}: {detail}")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what the exporters tell their own developers off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            with redirect_stdout(io.StringIO()):
                yield
    finally:
        logging.disable(before)
