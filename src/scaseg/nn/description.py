"""What each context is and costs: from the attributes of its class, and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaseg.nn.build import build_context
from scaseg.nn.cost import count_cost
from scaseg.registry import CONTEXTS


@dataclass(frozen=True)
class ContextDescription:
    """A context by its facts; costs are those of one image, by the number n of its neurons.

    multiply_adds: of a forward pass; memory: bytes of a training step (`count_cost`).
    not_exported: why `scaseg export` has no graph of it; "" where it has.
    """

    name: str
    summary: str
    parameters: int
    order: str
    multiply_adds: dict[int, int]
    memory: dict[int, int]
    receptive_field: str
    input_dependent: bool
    neuron_selective: bool
    has_maps: bool
    not_exported: str
    reference: str


def describe_contexts(
    channels: int, sides: Sequence[int], *, classes: int
) -> Iterator[ContextDescription]:
    """Describe each context of the registry, for square maps of `channels` with these sides.

    One after the other: counting them all takes ten seconds.
    """
    return (_describe(name, channels, sides, classes) for name in CONTEXTS)


def _describe(name: str, channels: int, sides: Sequence[int], classes: int) -> ContextDescription:
    block = build_context(name, channels, classes=classes)
    costs = {side**2: count_cost(name, channels, side, side, classes=classes) for side in sides}
    return ContextDescription(
        name=name,
        summary=(type(block).__doc__ or "(it has no docstring)").partition("\n")[0],
        parameters=sum(parameter.numel() for parameter in block.parameters()),
        order=block.order,
        multiply_adds={neurons: count for neurons, (count, _) in costs.items()},
        memory={neurons: peak for neurons, (_, peak) in costs.items()},
        receptive_field=block.receptive_field,
        input_dependent=block.input_dependent,
        neuron_selective=block.neuron_selective,
        has_maps=block.has_maps,
        not_exported=block.not_exported,
        reference=block.reference,
    )
