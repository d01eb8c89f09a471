"""What all commands share: errors of one line, and values that are checked as they are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Answers bad input with one line on stderr, `error: <option>: <what came>; <what fits>`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # --epoch for --epochs would work today and mean something else tomorrow
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())
        message = re.sub(r"^arguments? (\S+?):? ", r"\1: ", message)
        if "; " not in message:
            message = f"{message}; see {self.prog} --help"
        self.exit(2, f"error: {message}\n")


def positive(text: str) -> int:
    """Read a whole number >= 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number >= 1")
    return int(text)


def whole_numbers(text: str) -> list[int]:
    """Read whole numbers >= 1 separated by commas."""
    try:
        return [positive(part.strip()) for part in text.split(",")]
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(
            f"{text!r}; give whole numbers >= 1 separated by commas"
        ) from fault


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
