"""Every context in its variants: shared by the tests of nn. A new context adds a line here."""

from inspect import signature

import torch

from scaseg.registry import CONTEXTS

BLOCKS = {
    "sca": {},
    "sca, 3 channels": {"pair_channels": 3},
    "sca, exp": {"activation": "exp"},
    "sca, relu": {"activation": "relu"},
    "sca, softplus": {"activation": "softplus"},
    "sca, identity": {"activation": "identity"},
    "sca, no layers": {"layers": 0},
    "sca, W_c = W_d": {"share_features": True},
    "dot": {"key_channels": 4},
    "dot, sharpness": {"key_channels": 4, "sharpness": 1.0},
    "heads": {"heads": 2},
    "balanced": {"pair_channels": 5, "key_channels": 16},
    "gated": {"pair_channels": 5, "key_channels": 16, "score_dropout": 0.0},
    "position": {"pair_channels": 5, "key_channels": 16},
    "agents": {"grid": 3, "key_channels": 4},
    "cells": {"grid": 3, "key_channels": 4},
    "object": {"classes": 4, "key_channels": 4},
    "object, by area": {"classes": 4, "key_channels": 4, "by_area": True},
    "parsenet": {},
    "psp": {"bins": [1, 3], "branch_channels": 5},
    "dilated": {"branch_channels": 5},
    "aspp": {"rates": [2, 5], "branch_channels": 5},
    "ccnet": {"key_channels": 4},
    "gcnet": {},
    "a2": {"pair_channels": 5},
    "ema": {"pair_channels": 5, "key_channels": 4},
    "psa": {"grid": 5, "key_channels": 4},
    "dagrnn": {"branch_channels": 5},
    "crf": {"classes": 4, "key_channels": 4, "steps": 2},
    "average": {},
    "none": {},
}
WITH_CONTEXT = [name for name in BLOCKS if name != "none"]
WITHOUT_MAPS = ["psp", "dilated", "aspp", "dagrnn", "crf"]  # not a weighted mean
WITH_MAPS = [name for name in WITH_CONTEXT if name not in WITHOUT_MAPS]
# look around a neuron's own place
OF_ONE_MAP = ["dilated", "aspp", "ccnet", "psa", "dagrnn", "crf"]
FROM_ELSEWHERE = [name for name in WITH_CONTEXT if name not in OF_ONE_MAP]
PREDICTED = [name for name in BLOCKS if name.startswith("sca")]


def make(name, in_channels=6, out_channels=None, spread=True, **options):
    """Build a variant; options that another context takes are left out."""
    kind = CONTEXTS[name.partition(",")[0]]
    known = signature(kind).parameters
    options = {"hidden": 8, **BLOCKS[name], **options}
    block = kind(in_channels, out_channels, **{k: v for k, v in options.items() if k in known})
    if spread and hasattr(block, "predictor"):  # fresh scores are nearly equal: make them matter
        # identity and relu start at 1 and must stay clear of 0, where rows vanish
        std = 0.02 if block.predictor.activation in ("identity", "relu") else 0.5
        torch.nn.init.normal_(block.predictor.score.weight, std=std)
    return block
