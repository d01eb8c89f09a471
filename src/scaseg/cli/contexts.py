"""scaseg contexts."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from scaseg.cli.options import add_with_context
from scaseg.cli.parser import Parser, add_option, listed, whole
from scaseg.errors import located

if TYPE_CHECKING:
    from scaseg.nn.description import ContextDescription

MOST_SIDE = 128  # they are computed, and attention takes n^2


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "contexts",
        help="list the contexts that a network can have, with what each costs",
        description="List every context: what it is, its parameters, how its cost grows with the "
        "number n of neurons (multiply-adds of a forward pass and memory of a training step in "
        "float32, counted for maps of several sizes), how far a neuron sees, whether the weights "
        "of its sources depend on the image, whether their order differs between neurons, and "
        "where it comes from.",
        epilog="example: scaseg contexts --channels 256 --sides 32,64",
    )
    option = partial(add_option, parser)
    about = "of the feature map (default: %(default)s, as VGG16 has)"
    option("--channels M", about, type=whole(1, 2048), default=512)
    about = "sides of square maps to count at, separated by commas (default: %(default)s)"
    fits = f"give whole numbers from 1 to {MOST_SIDE} separated by commas"
    sides = listed(whole(1, MOST_SIDE), fits)
    option("--sides N,N,...", about, type=sides, default="14,28,56")
    about = "for contexts with a channel for each class (default: %(default)s)"
    option("--classes N", about, type=whole(1, 2**14), default=59)
    add_with_context(parser)
    option = partial(add_option, parser.add_mutually_exclusive_group())
    option("--json", "print JSON and nothing else")
    option("--csv", "print the costs as CSV and nothing else: a row for each context and size")
    parser.set_defaults(run=_contexts)


def _contexts(options: argparse.Namespace) -> None:
    from scaseg.nn.description import describe_contexts

    found = describe_contexts(options.channels, options.sides, classes=options.classes)
    with located("--channels"):
        if options.json:
            print(json.dumps([asdict(one) for one in found], indent=2))
        elif options.csv:
            print("context,parameters,n,multiply_adds,memory")
            for one in found:
                for neurons, count in one.multiply_adds.items():
                    print(f"{one.name},{one.parameters},{neurons},{count},{one.memory[neurons]}")
        else:
            width = max(shutil.get_terminal_size().columns - 4, 20)
            for one in found:
                lines = [textwrap.fill(line, width, subsequent_indent="  ") for line in _lines(one)]
                print(
                    one.name,
                    *(textwrap.indent(line, "    ") for line in lines),
                    sep="\n",
                    flush=True,
                )


def _lines(one: ContextDescription) -> list[str]:
    counted = ", ".join(f"{count / 1e9:.3g}" for count in one.multiply_adds.values())
    memory = ", ".join(f"{held / 2**20:.3g}" for held in one.memory.values())
    sizes = ", ".join(f"{neurons:,}" for neurons in one.multiply_adds)
    return [
        one.summary,
        f"{one.parameters / 1e6:.2f} M parameters; O({one.order}); at n = {sizes}: {counted} G "
        f"multiply-adds, {memory} MiB to train",
        f"sees {one.receptive_field}; weights "
        f"{'depend on the image' if one.input_dependent else 'are fixed'}, "
        f"{'an order for each neuron' if one.neuron_selective else 'one order for all neurons'}; "
        f"{'maps' if one.has_maps else 'no maps'}"
        + (f"; not exported: {one.not_exported}" if one.not_exported else ""),
        f"from: {one.reference}",
    ]
