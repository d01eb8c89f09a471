"""Options about the machine, for every command that computes."""

from __future__ import annotations

from scaseg.cli.parser import Parser, positive

# options that stand for a key of the run: what a person types, and where it goes
MACHINE_KEYS = {
    "device": "machine.device",
    "devices": "machine.devices",
    "precision": "machine.precision",
    "workers": "machine.workers",
}


def add_machine(parser: Parser) -> None:
    """Describe where to compute; nothing given: the recipe's, or what the machine has."""
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda", "mps"), help="what to compute on (auto)"
    )
    group.add_argument(
        "--devices", type=positive, metavar="N", help="processes, one on each device (1)"
    )
    group.add_argument("--precision", choices=("32", "bf16", "16"), help="of activations (32)")
    group.add_argument("--workers", metavar="N", help="loader processes (by the number of cores)")
