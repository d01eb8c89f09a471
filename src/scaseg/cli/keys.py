"""Keys of a recipe as options, --training.epochs 3: taken out of the arguments, and checked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence

from scaseg.cli.suggest import nearest


def split_keys(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take --any.config.key VALUE (or =VALUE) out of the arguments: the rest, and {key: text}.

    Before argparse sees them: it would take the value of an option that it does not know for
    something else.
    """
    rest: list[str] = []
    keys: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":  # nothing after it is an option
            return [*rest, argument, *waiting], keys
        found = re.fullmatch(r"--([\w-]+(?:\.[\w-]+)+)(?:=(.*))?", argument, re.DOTALL)
        if found is None:
            rest.append(argument)
            continue
        key, value = found.groups()
        if value is None:
            value = next(waiting, None)
            if value is None:
                raise argparse.ArgumentTypeError(f"--{key}: no value; give one after it")
            if value.startswith("--"):  # the next option, more likely
                raise argparse.ArgumentTypeError(
                    f"--{key}: {value!r} follows; give a value, or --{key}={value}"
                )
        keys[key] = value
    return rest, keys


def unknown_key(keys: Iterable[str]) -> str | None:
    """Say in one line which key no recipe has, and which was probably meant; None: all are known.

    >>> unknown_key(["training.epohcs"])
    '--training.epohcs: unknown key; did you mean --training.epochs?'
    """
    known = _known()
    for key in keys:
        parts = key.split(".")
        # below a mapping of options anything may stand: --model.context_options.pair_channels
        if not any(".".join(parts[:end]) in known for end in range(2, len(parts) + 1)):
            near = key_that_ends(parts[-1]) or nearest(key, known)
            advice = "scaseg train --keys lists all" if near is None else f"did you mean --{near}?"
            return f"--{key}: unknown key; {advice}"
    return None


def key_that_ends(name: str) -> str | None:
    """Find the key whose last part is `name`.

    >>> key_that_ends("ema")
    'training.ema'
    """
    return next((key for key in _known() if key.rpartition(".")[2] == name), None)


def _known() -> list[str]:
    from scaseg.config.recipe import describe

    return [key for key, *_ in describe()]
