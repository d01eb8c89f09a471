"""What all commands share: errors of one line, and values that are checked as they are read."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from scaseg.cli.example import format_epilog, split_epilog
from scaseg.cli.suggest import instead, nearest, with_suggestion

LONG, LONGEST = 300, 660  # a word, and a message, that says no more when it is longer


class Parser(argparse.ArgumentParser):
    """Answers bad input with one line on stderr, `error: <option>: <what came>; <what fits>`.

    The epilog is `example: COMMAND; a note`. Help, errors and suggestions are the same on every
    Python: 3.14 brings colours and suggestions of its own, which are turned off.
    """

    def __init__(self, *arguments: Any, epilog: str | None = None, **options: Any) -> None:
        # --epoch for --epochs would work today and mean something else tomorrow
        options = {"allow_abbrev": False, **options}
        if sys.version_info >= (3, 14):
            options |= {"color": False, "suggest_on_error": False}
        super().__init__(*arguments, **options)
        self.example, self.note = split_epilog(epilog)

    def format_help(self) -> str:
        # argparse would fill the example like prose, and break it where a shell would not
        width = shutil.get_terminal_size().columns - 2
        closing = format_epilog(self.example, self.note, width)
        return super().format_help() + (f"\n{closing}" if closing else "")

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^arguments? (\S+?):? ", r"\1: ", " ".join(message.split()))
        message = re.sub(r": invalid int value: (.+)$", r": \1; give a whole number", message)
        message = re.sub(r": invalid float value: (.+)$", r": \1; give a number", message)
        self.fail(2, with_suggestion(message))

    def fail(self, code: int, message: str) -> NoReturn:
        """End with one line on stderr, whatever others' files have brought into the message."""
        message = one_line(message)
        if "; " not in message:
            message = f"{message}; see {self.prog} --help"
        self.exit(code, f"error: {message}\n")

    def commands(self) -> dict[str, Parser]:
        """The commands under this one, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for namespaces
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        # before argparse looks: it would first complain of what is missing for want of this one
        given = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown_options(given)
        if not self.commands():
            self._refuse_nothing(given)
        options, extra = super().parse_known_args(given, namespace)
        if extra and not self.commands():
            self.error(f"{extra[0]!r}: not expected here; see {self.prog} --help")
        return options, extra

    def _refuse_unknown_options(self, arguments: Sequence[str]) -> None:
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--" or (self.commands() and not argument.startswith("-")):
                return  # what follows is no option, or another parser's
            option = argument.partition("=")[0]
            # with a space in it, argparse takes it for a value
            if argument.startswith("--") and " " not in argument and option not in known:
                hyphenated = option.replace("_", "-")
                near = hyphenated if hyphenated in known else self._key(option)
                near = near or nearest(option, known)
                advice = f"see {self.prog} --help"
                if (other := instead(option, known)) is not None:
                    advice = other
                elif near is not None:
                    advice = f"did you mean {near}?"
                elif self.commands():
                    advice = f"options follow the command: {advice}"
                self.error(f"{option}: unknown option; {advice}")

    def _refuse_nothing(self, arguments: Sequence[str]) -> None:
        """Refuse an empty value: as a path it would be the working folder, which nobody named."""
        for before, argument in zip(["", *arguments], arguments, strict=False):
            if argument == "" or (argument.startswith("--") and argument.endswith("=")):
                name = argument.rstrip("=") or (before if before.startswith("--") else self.prog)
                self.error(f"{name}: ''; give something, or leave it out")

    def _key(self, option: str) -> str | None:
        """The setting of a run that ends like an option: --training.ema for --ema."""
        if not self.get_default("takes_keys"):
            return None
        from scaseg.cli.keys import key_that_ends

        key = key_that_ends(option.lstrip("-").replace("-", "_"))
        return None if key is None else f"--{key}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        if not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(action, f"{value!r}; give one of {', '.join(choices)}")
        below = {name: f"{c} {name}" for c in choices for name in action.choices[c].commands()}
        near = nearest(value, [*choices, *below])
        if near is not None:
            self.error(f"unknown command {value!r}; did you mean {below.get(near, near)}?")
        self.error(f"unknown command {value!r}; the commands are {', '.join(choices)}")


def one_line(message: str) -> str:
    r"""Bring a message to one line that a terminal shows as it is, and a person can read.

    >>> one_line("a\x1b[31m b\nc")
    'a\\x1b[31m b c'
    """
    words = [
        word if len(word) <= LONG else f"{word[:40]}...{word[-40:]}" for word in message.split()
    ]
    said = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in " ".join(words)
    )
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 3]}..."


def whole(text: str, least: int, most: int | None = None) -> int:
    """Read a whole number from `least` to `most`."""
    few = text.isascii() and text.isdigit() and len(text) <= 18
    if not few or int(text) < least or (most is not None and int(text) > most):
        fits = f">= {least}" if most is None else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number {fits}")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number >= 1."""
    return whole(text, 1)


def whole_numbers(text: str) -> list[int]:
    """Read whole numbers >= 1 separated by commas."""
    try:
        return [positive(part.strip()) for part in text.split(",")]
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(
            f"{text!r}; give whole numbers >= 1 separated by commas"
        ) from fault
