"""Scene segmentation with neuron-level selective context aggregation.

>>> import scaseg, torch
>>> block = scaseg.SelectiveContext(64)
>>> block(torch.randn(1, 64, 32, 32)).shape
torch.Size([1, 64, 32, 32])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scaseg.version import __version__ as __version__

if TYPE_CHECKING:
    from scaseg.comparison.compare import compare as compare
    from scaseg.errors import UserError as UserError
    from scaseg.errors import WorkError as WorkError
    from scaseg.explanation.maps import explain as explain
    from scaseg.export.export import export_model as export_model
    from scaseg.inference.predict import predict as predict
    from scaseg.inference.predict_folder import predict_folder as predict_folder
    from scaseg.inference.segmentation import Segmentation as Segmentation
    from scaseg.models.build import create_model as create_model
    from scaseg.models.build import load_model as load_model
    from scaseg.models.segmenter import Segmenter as Segmenter
    from scaseg.nn.aggregation import ContextAggregation as ContextAggregation
    from scaseg.nn.own import add_context as add_context
    from scaseg.nn.predictor import DependencyPredictor as DependencyPredictor
    from scaseg.nn.selective_context import SelectiveContext as SelectiveContext
    from scaseg.ops.dispatch import aggregate as aggregate
    from scaseg.ops.dispatch import choose_backend as choose_backend
    from scaseg.ops.dispatch import selective_context as selective_context
    from scaseg.training.evaluation import evaluate as evaluate
    from scaseg.training.run import train as train

# The public names and where they live. Imported on first use: torch takes a second to load, and
# `scaseg --help` must not wait for it.
_HOME = {
    "ContextAggregation": "scaseg.nn.aggregation",
    "DependencyPredictor": "scaseg.nn.predictor",
    "Segmentation": "scaseg.inference.segmentation",
    "Segmenter": "scaseg.models.segmenter",
    "SelectiveContext": "scaseg.nn.selective_context",
    "UserError": "scaseg.errors",
    "WorkError": "scaseg.errors",
    "add_context": "scaseg.nn.own",
    "aggregate": "scaseg.ops.dispatch",
    "choose_backend": "scaseg.ops.dispatch",
    "compare": "scaseg.comparison.compare",
    "create_model": "scaseg.models.build",
    "evaluate": "scaseg.training.evaluation",
    "explain": "scaseg.explanation.maps",
    "export_model": "scaseg.export.export",
    "load_model": "scaseg.models.build",
    "predict": "scaseg.inference.predict",
    "predict_folder": "scaseg.inference.predict_folder",
    "selective_context": "scaseg.ops.dispatch",
    "train": "scaseg.training.run",
}
_SUBPACKAGES = (
    *("comparison", "config", "data", "errors", "explanation", "export", "inference", "io"),
    *("losses", "metrics", "models", "nn", "ops", "plots", "training"),
)

__all__ = [  # noqa: RUF022  (the block first: it is what most people come for)
    "SelectiveContext",
    "ContextAggregation",
    "DependencyPredictor",
    "selective_context",
    "aggregate",
    "choose_backend",
    "create_model",
    "load_model",
    "add_context",
    "Segmenter",
    "Segmentation",
    "train",
    "evaluate",
    "predict",
    "predict_folder",
    "explain",
    "export_model",
    "compare",
    "UserError",
    "WorkError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"scaseg.{name}")
    raise AttributeError(f"module 'scaseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES, "__version__"])
