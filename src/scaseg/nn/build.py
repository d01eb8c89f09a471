"""A context by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from scaseg.errors import UserError
from scaseg.registry import CONTEXTS, options_of


def build_context(
    name: str, in_channels: int, *, classes: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build the context of that name; options of the other contexts are left out.

    One recipe serves a comparison of contexts: its options concern some of them. `classes` is no
    option: a context that has such a parameter gets this number.
    """
    names = {context: options_of(context) for context in CONTEXTS}
    known = dict.fromkeys(one for own in names.values() for one in own if one != "classes")
    for one in options or {}:
        if one not in known:
            raise UserError(one, "unknown key", f"give some of {', '.join(known)}")
    own = {one: value for one, value in (options or {}).items() if one in names[name]}
    if "classes" in names[name]:
        own["classes"] = classes
    try:
        context: nn.Module = CONTEXTS[name](in_channels, **own)
    except TypeError as error:  # a list where one word belongs
        raise UserError("", str(error), "see scaseg.SelectiveContext") from error
    return context
