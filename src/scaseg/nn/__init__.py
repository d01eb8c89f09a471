"""The operator as modules that a network is built from."""

from scaseg.nn.aggregation import ContextAggregation as ContextAggregation
from scaseg.nn.predictor import DependencyPredictor as DependencyPredictor
from scaseg.nn.selective_context import SelectiveContext as SelectiveContext
