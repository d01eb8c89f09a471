"""Tensor mathematics of selective context: no modules, no configuration."""

from scaseg.ops.activation import ACTIVATIONS as ACTIVATIONS
from scaseg.ops.attention import dot_context as dot_context
from scaseg.ops.dispatch import aggregate as aggregate
from scaseg.ops.dispatch import choose_backend as choose_backend
from scaseg.ops.dispatch import selective_context as selective_context
from scaseg.ops.uniform import uniform_context as uniform_context
