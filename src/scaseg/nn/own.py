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
    block = context = whole = None
    same = True
    # what it cannot do with such a map, or without options, is seen when it is used
    with suppress(Exception), torch.random.fork_rng(devices=[]), torch.no_grad():
        block = found(8, 4).eval()
        x, mask = torch.randn(2, 8, 6, 5), torch.zeros(2, 6, 5, dtype=torch.bool)
        mask[:, :4, :3] = True
        context = block.target_context(x, None, None)
        whole, alone = block(x), block(x[..., :4, :3])
        padded = block(x, mask=mask)[..., :4, :3]
        same = torch.allclose(alone, padded, rtol=1e-2, atol=1e-3, equal_nan=True)
    if block is not None and found.score_parts and not block.score_parameters():
        problem = f"{path}: score_parts {found.score_parts!r} name no parameters of it"
        raise UserError("", problem, "give a tuple of its layers' and parameters' names")
    if context is not None and context.shape not in ((2, 30, 4), (2, 1, 4)):
        problem = f"{path}: target_context of 30 neurons gives {list(context.shape)}"
        raise UserError("", problem, "return (B, n, M), or (B, 1, M): here [2, 30, 4]")
    if whole is not None and whole.shape != (2, 4, 6, 5):
        problem = f"{path} turns a map of 6 x 5 neurons into {list(whole.shape)}"
        raise UserError("", problem, "return (B, M, H, W): here [2, 4, 6, 5]")
    if not same:  # a map alone, and with padding that a mask leaves out
        problem = f"{path}: padding is part of its context"
        raise UserError("", problem, "leave out the sources where source_mask is False")
    CONTEXTS.add(path)
    return found
