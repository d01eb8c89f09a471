"""The argument parser of all commands: errors of one line, examples that can be pasted."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from scaseg.errors import UserError, located, nearest

Item = TypeVar("Item")
_FITS = {int: "a whole number", float: "a number"}
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")  # quoted spaces do not end a word


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError for bad input.

    The epilog is `example: COMMAND; a note`. Help, errors and suggestions are the same on every
    Python: 3.14 brings colors and suggestions of its own, which are turned off.
    """

    def __init__(self, *arguments: Any, epilog: str = "", **options: Any) -> None:
        # --epoch for --epochs would work today and mean something else tomorrow
        options = {"allow_abbrev": False, **options}
        if sys.version_info >= (3, 14):
            options |= {"color": False, "suggest_on_error": False}
        super().__init__(*arguments, **options)
        self.example, _, self.note = epilog.removeprefix("example: ").partition("; ")

    @property
    def see_help(self) -> str:
        """The remedy where nothing better is known."""
        return f"see {self.prog} --help"

    def format_help(self) -> str:
        # argparse would fill the example like prose, and break it where a shell would not
        width = shutil.get_terminal_size().columns - 2
        parts = [format_command(f"example: {self.example}", width)] if self.example else []
        if self.note:
            parts.append(textwrap.fill(self.note, width, break_on_hyphens=False))
        closing = "\n\n".join(parts)
        return super().format_help() + (f"\n{closing}\n" if closing else "")

    def error(self, message: str) -> NoReturn:
        """Turn a complaint of argparse itself into a UserError."""
        place, _, problem = re.sub(r"^arguments? (\S+?):? ", r"\1\n", message).rpartition("\n")
        raise UserError(place, " ".join(problem.split()), self.see_help)

    def commands(self) -> dict[str, Parser]:
        """The commands under this one, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for namespaces
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        # before argparse does: it would first complain about what is missing instead
        given = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown_options(given)
        if not self.commands():
            self._refuse_empty_values(given)
        options, extra = super().parse_known_args(given, namespace)
        if extra and not self.commands():
            raise UserError(repr(extra[0]), "not expected here", self.see_help)
        return options, extra

    def _refuse_unknown_options(self, arguments: Sequence[str]) -> None:
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--" or (self.commands() and not argument.startswith("-")):
                return  # what follows is no option, or belongs to another parser
            option = argument.partition("=")[0]
            # with a space in it, argparse takes it for a value
            if argument.startswith("--") and " " not in argument and option not in known:
                raise UserError(option, "unknown option", self._advice(option))

    def _advice(self, option: str) -> str:
        known = self._option_string_actions
        if option == "--model" and "--start-from" in known:
            return "a model is trained further by --start-from MODEL"
        if option == "--model" and "--backbone-weights" in known:
            return "a training starts from a model's backbone by --backbone-weights outdoor"
        hyphenated = option.replace("_", "-")
        near = hyphenated if hyphenated in known else None
        if near is None and (read := self.get_default("reads_keys")):
            from scaseg.cli.settings import key_ending

            key = key_ending(option.lstrip("-").replace("-", "_"), read)  # --training.ema for --ema
            near = key and f"--{key}"
        near = near or nearest(option, known)
        if near is not None:
            return f"did you mean {near}?"
        return f"options follow the command: {self.see_help}" if self.commands() else self.see_help

    def _refuse_empty_values(self, arguments: Sequence[str]) -> None:
        """Refuse an empty value: as a path it would be the working folder, which nobody named."""
        for before, argument in zip(["", *arguments], arguments, strict=False):
            if argument == "" or (argument.startswith("--") and argument.endswith("=")):
                name = argument.rstrip("=") or (before if before.startswith("--") else self.prog)
                raise UserError(name, "''", "give something, or leave it out")

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        convert: Any = self._registry_get("type", action.type, action.type)
        with located(_place(action)):
            try:
                return convert(text)
            except UserError:
                raise
            except (TypeError, ValueError) as error:
                raise UserError("", repr(text), f"give {_FITS.get(convert, 'another')}") from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if not isinstance(action, argparse._SubParsersAction):
            raise UserError.choice(_place(action), value, action.choices)
        commands = list(action.choices)
        below = {name: f"{c} {name}" for c in commands for name in action.choices[c].commands()}
        near = nearest(value, [*commands, *below])
        fits = f"the commands are {', '.join(commands)}"
        remedy = fits if near is None else f"did you mean {below.get(near, near)}?"
        raise UserError("", f"unknown command {value!r}", remedy)


def _place(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def format_command(command: str, width: int) -> str:
    r"""Break a long command as a shell reads it, options staying with their values.

    >>> print(format_command("scaseg data check masks --workers 2", 24))
    scaseg data check \
        masks --workers 2
    """
    pieces: list[str] = []
    for word in _WORD.findall(command):
        if pieces and re.fullmatch(r"--?[\w.-]+", pieces[-1]) and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
        else:
            lines[-1] += f" {piece}"
    return "\n".join(lines)


def add_option(to: argparse._ActionsContainer, spec: str, about: str, **more: Any) -> None:
    """Add an option: "--name VALUE", or a switch "--name"; N is a whole number from 1 on."""
    name, _, metavar = spec.partition(" ")
    if metavar:
        more["metavar"] = metavar
    if metavar == "N":
        more.setdefault("type", positive)
    if not metavar and "choices" not in more:
        more.setdefault("action", "store_true")
    to.add_argument(name, help=about, **more)


def listed(read: Callable[[str], Item], fits: str) -> Callable[[str], list[Item]]:
    """Return a function that reads values separated by commas; fits: what to give."""

    def read_all(text: str) -> list[Item]:
        try:
            return [read(part.strip()) for part in text.split(",")]
        except ValueError:
            raise UserError("", repr(text), fits) from None

    return read_all


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a function that reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= 18
        if not digits or int(text) < least or (most is not None and int(text) > most):
            fits = f">= {least}" if most is None else f"from {least} to {most}"
            raise UserError("", repr(text), f"give a whole number {fits}")
        return int(text)

    return read


positive = whole(1)
