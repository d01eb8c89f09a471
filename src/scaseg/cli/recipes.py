"""scaseg recipes."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.parser import Parser, add_option
from scaseg.errors import UserError
from scaseg.io.atomic import write_text
from scaseg.io.paths import not_writable


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "recipes",
        help="list, show or copy the recipes that come with scaseg",
        description="Without a name, list the recipes that come with scaseg; with one, print it "
        "or, with --copy, write it to a file of your own to change.",
        epilog="example: scaseg recipes own_folder --copy mine.yaml; then scaseg train mine.yaml",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the recipe to print or copy")
    add_option(parser, "--copy FILE", "write it there, a new file", type=Path)
    parser.set_defaults(run=_recipes)


def _recipes(options: argparse.Namespace) -> None:
    from scaseg.config.recipe import RECIPES, recipe_names

    names = recipe_names()
    if options.name is None:
        if options.copy is not None:
            raise UserError("--copy", "no recipe named", "give NAME --copy FILE")
        width = max(shutil.get_terminal_size().columns - 4, 20)
        for name in names:
            text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
            summary = " ".join(
                text.partition("\n# scaseg ")[0].replace("\n#", "").lstrip("# ").split()
            )
            first = summary.partition(". ")[0].removesuffix(".")
            print(name, textwrap.indent(textwrap.fill(first, width), "    "), sep="\n")
        return
    if options.name not in names:
        raise UserError.choice("NAME", options.name, names)
    text = (RECIPES / f"{options.name}.yaml").read_text(encoding="utf-8")
    if options.copy is None:
        print(text, end="")
        return
    if os.path.lexists(options.copy):
        raise UserError("--copy", f"{options.copy} is there already", "give a new file")
    try:
        write_text(options.copy, text)
    except OSError as error:
        raise not_writable(options.copy, error).within("--copy") from error
    command = shlex.join(["scaseg", "train", str(options.copy)])
    print(f"{options.copy}: {options.name}; train it with: {command}")
