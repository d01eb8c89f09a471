"""Contexts of the user's own, by import path."""

from __future__ import annotations

from contextlib import suppress
from inspect import isabstract, isclass, signature

import torch

from scaseg.errors import UserError
from scaseg.nn.context import Context
from scaseg.registry import CONTEXTS, load_path


def add_context(path: str) -> type[Context]:
    """Let in a context of your own: "package.module:Class", a subclass of `Context`.

    From then on the path is a name like "sca", in this process: for `create_model`, `train`,
    `compare`, and for `load_model` where a saved model names it. This imports the module, so it is
    never done for a path that a file names; whoever loads such a model has to ask for it.
    """
    found = load_path("", path)
    if not isclass(found) or not issubclass(found, Context) or isabstract(found):
        fits = "give a subclass of scaseg.nn.context.Context that has target_context"
        raise UserError("", f"{path} is no context", fits)
    if list(signature(found).parameters)[:2] != ["in_channels", "out_channels"]:
        problem = f"{path} has other parameters than (in_channels, out_channels=None, *, ...)"
        raise UserError("", problem, "begin with these two; options follow")
    block = context = None
    # what it cannot do with such a map, or without options, is seen when it is used
    with suppress(Exception), torch.random.fork_rng(devices=[]), torch.no_grad():
        block = found(8, 4)
        context = block.target_context(torch.randn(2, 8, 6, 5), None, None)
    if block is not None and found.score_parts and not block.score_parameters():
        problem = f"{path}: score_parts {found.score_parts!r} name no parameters of it"
        raise UserError("", problem, "give a tuple of its layers' and parameters' names")
    if context is not None and context.shape not in ((2, 30, 4), (2, 1, 4)):
        problem = f"{path}: target_context of 30 neurons gives {list(context.shape)}"
        raise UserError("", problem, "return (B, n, M), or (B, 1, M): here [2, 30, 4]")
    CONTEXTS.add(path)
    return found
