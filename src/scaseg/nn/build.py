"""A context by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from scaseg.errors import UserError
from scaseg.registry import CONTEXTS, options_of, taken_options


def build_context(
    name: str, in_channels: int, *, classes: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build the context of that name; options of the other contexts are left out.

    `classes` is no option: a context that has such a parameter gets this number.
    """
    own = taken_options(name, options or {}, CONTEXTS)
    if "classes" in options_of(name):
        own["classes"] = classes
    try:
        context: nn.Module = CONTEXTS[name](in_channels, **own)
    except TypeError as error:  # a list where one word belongs
        raise UserError("", str(error), "see scaseg.SelectiveContext") from error
    return context
