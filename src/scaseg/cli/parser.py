"""What all commands share: errors of one line, and values that are checked as they are read."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Answers bad input with one line on stderr, `error: <option>: <what came>; <what fits>`."""

    def error(self, message: str) -> NoReturn:
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
