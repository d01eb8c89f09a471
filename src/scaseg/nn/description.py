"""What each context is and costs: from the attributes of its class, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from scaseg.nn.build import build_context
from scaseg.nn.context import Context
from scaseg.registry import CONTEXTS


@dataclass(frozen=True)
class ContextDescription:
    """A context by its facts; multiply_adds: of one image, by the number n of its neurons.

    Those of convolutions and matrix products are counted, as they are computed on this machine.
    """

    name: str
    summary: str
    parameters: int
    order: str
    multiply_adds: dict[int, int]
    receptive_field: str
    input_dependent: bool
    neuron_selective: bool
    has_maps: bool
    reference: str


@torch.no_grad()
def describe_contexts(
    channels: int, sides: Sequence[int], *, classes: int
) -> list[ContextDescription]:
    """Describe every context of the registry, for square maps of `channels` with these sides."""
    return [_describe(name, channels, sides, classes) for name in CONTEXTS]


def _describe(name: str, channels: int, sides: Sequence[int], classes: int) -> ContextDescription:
    block = build_context(name, channels, classes=classes).eval()
    assert isinstance(block, Context)
    counted = {}
    for side in sides:
        with FlopCounterMode(display=False) as counter:
            block(torch.zeros(1, channels, side, side))
        counted[side**2] = counter.get_total_flops() // 2  # it counts both operations
    kind = type(block)
    return ContextDescription(
        name=name,
        summary=(kind.__doc__ or "").partition("\n")[0],
        parameters=sum(parameter.numel() for parameter in block.parameters()),
        order=block.order,
        multiply_adds=counted,
        receptive_field=block.receptive_field,
        input_dependent=block.input_dependent,
        neuron_selective=block.neuron_selective,
        has_maps=block.has_maps,
        reference=block.reference,
    )
