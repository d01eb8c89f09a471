"""A context by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaseg.errors import UserError
from scaseg.nn.context import Context
from scaseg.registry import CONTEXTS, options_of, taken_options


def build_context(
    name: str, in_channels: int, *, classes: int, options: Mapping[str, Any] | None = None
) -> Context:
    """Build the context of that name; options of the other contexts are left out.

    `classes` is no option: a context that has such a parameter gets this number.
    """
    own = taken_options(name, options or {}, CONTEXTS)
    if "classes" in options_of(name):
        own["classes"] = classes
    try:
        context: Context = CONTEXTS[name](in_channels, **own)
        return context
    except TypeError as error:  # a list where one word belongs
        raise UserError("", str(error), "see scaseg.SelectiveContext") from error
