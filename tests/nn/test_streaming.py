"""A block's context in two passes over parts of a map is the block's context of the whole map."""

import pytest
import torch

from scaseg.errors import UserError
from scaseg.nn.contexts.dot import DotContext
from scaseg.nn.selective_context import SelectiveContext
from scaseg.nn.streaming import StreamedContext
from scaseg.registry import CONTEXTS

BLOCKS = [
    {"context": "none"},
    {"context": "average"},
    {"activation": "sigmoid"},
    {"activation": "softplus", "pair_channels": 3},
    {"activation": "exp", "pair_channels": 2},
    {"activation": "identity"},
]


def spread(options):
    if "context" in options:
        return CONTEXTS[options["context"]](8)
    block = SelectiveContext(8, hidden=8, **options)
    torch.nn.init.normal_(block.predictor.score.weight)
    return block


@pytest.mark.parametrize("options", BLOCKS)
@torch.no_grad()
def test_parts_of_a_map(options):
    block, x = spread(options), torch.randn(1, 8, 9, 14)
    gathered = StreamedContext(block)
    parts = [x[..., :5], x[..., 5:6], x[..., 6:]]
    for part in parts:
        gathered.add(part)
    found = [gathered(part, torch.ones(part.shape[-2:], dtype=torch.bool)) for part in parts]
    torch.testing.assert_close(torch.cat(found, -1), block(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", BLOCKS[1:])
@torch.no_grad()
def test_a_twin_keeps_what_was_counted(options):
    """A neuron that was not counted itself has all sources as context, as from another image."""
    block, x = spread(options), torch.randn(1, 8, 5, 6)
    gathered = StreamedContext(block)
    gathered.add(x)
    twin = torch.randn(1, 8, 2, 2)
    found = gathered(twin, torch.zeros(2, 2, dtype=torch.bool))
    torch.testing.assert_close(found, block(twin, source=x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_low_precision():
    block, x = spread({}), torch.randn(1, 8, 9, 14)
    gathered = StreamedContext(block)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gathered.add(x)
        found = gathered(x, torch.ones(9, 14, dtype=torch.bool))
    torch.testing.assert_close(found.float(), block(x), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (DotContext(8), "DotContext"),
        (SelectiveContext(8, activation="relu"), "activation relu and score_bound None"),
        (SelectiveContext(8, score_bound=None), "activation sigmoid and score_bound None"),
        (torch.nn.Identity(), "Identity"),
    ],
)
def test_what_is_no_matter_of_a_few_sums(block, named):
    with pytest.raises(
        UserError, match=f"context_scope: image does not work for a model with {named}; use window"
    ):
        StreamedContext(block)
