"""scaseg completion."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from scaseg.cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")
NAMED = ("train", "compare", "recipes")  # commands whose first argument may be a recipe's name


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "completion",
        help="completion of commands, options and choices for your shell",
        description="Print a script that completes commands, options, choices, recipes and files. "
        "bash: source <(scaseg completion bash) in ~/.bashrc. zsh: source <(scaseg completion zsh) "
        "in ~/.zshrc, after compinit. fish: scaseg completion fish > "
        "~/.config/fish/completions/scaseg.fish",
        epilog="example: scaseg completion bash",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    parser.set_defaults(run=_completion)


def _completion(options: argparse.Namespace) -> None:
    from scaseg.cli import build_parser

    parsers = dict(_all(build_parser()))
    print(_fish(parsers) if options.shell == "fish" else _bash(parsers, options.shell), end="")


def _all(parser: Parser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Parser]]:
    """Every parser, by the words that lead to it."""
    yield " ".join(words), parser
    for name, below in parser.commands().items():
        yield from _all(below, (*words, name))


def _options(parser: Parser) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Each long option with what may follow it (nothing: anything) and its help."""
    from scaseg.io.model_folder import builtin_models

    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--") and action.help != argparse.SUPPRESS:
                values = tuple(map(str, action.choices or ()))
                values = values or (builtin_models() if option == "--model" else ())
                about = (action.help or "").replace("%(default)s", str(action.default))
                yield option, values, about.replace("%%", "%").partition("; ")[0]


def _words(path: str, parser: Parser) -> list[str]:
    """What may stand where no option's value is awaited, files aside."""
    from scaseg.config.recipe import recipe_names

    words = [*parser.commands(), *(option for option, _, _ in _options(parser))]
    for action in parser._actions:
        if not action.option_strings and not parser.commands():
            words += map(str, action.choices or ())
    return words + (recipe_names() if path in NAMED else [])


def _bash(parsers: dict[str, Parser], shell: str) -> str:
    steps = [f'      " {path}" | "{path}") path="{path}" ;;' for path in parsers if path]
    values = [
        f'    "{path} {option}") words="{" ".join(choices)}"'
        f"{'' if option == '--model' else ' files=no'} ;;"
        for path, parser in parsers.items()
        for option, choices, _ in _options(parser)
        if choices
    ]
    words = [
        f'    "{p}") words="{" ".join(_words(p, parser))}" ;;' for p, parser in parsers.items()
    ]
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []),
        "_scaseg() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local path="" words="" files="" i',
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$path ${COMP_WORDS[i]}" in',
        *steps,
        "    esac",
        "  done",
        '  case "$path $before" in',
        *values,
        "  esac",
        '  if [ -z "$words" ]; then case "$path" in',
        *words,
        "  esac; fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '  if [[ -n "$path" && -z "$files" && "$word" != -* ]]; then',
        '    COMPREPLY+=($(compgen -f -- "$word"))',
        "  fi",
        "}",
        "complete -o filenames -F _scaseg scaseg",
    ]
    return "\n".join(lines) + "\n"


def _fish(parsers: dict[str, Parser]) -> str:
    lines = []
    for path, parser in parsers.items():
        seen = [f"__fish_seen_subcommand_from {word}" for word in path.split()]
        when = " && ".join(seen) if seen else "__fish_use_subcommand"
        for name, below in parser.commands().items():
            about = _quoted((below.description or "").partition(". ")[0].partition("; ")[0])
            lines.append(f"complete -c scaseg -f -n '{when}' -a {name} -d {about}")
        for option, choices, about in _options(parser):
            exclusive = "" if option == "--model" else "-x "
            extra = f" {exclusive}-a '{' '.join(choices)}'" if choices else ""
            lines.append(
                f"complete -c scaseg -n '{when}' -l {option[2:]}{extra} -d {_quoted(about)}"
            )
        known = {*parser.commands(), *(option for option, _, _ in _options(parser))}
        if rest := [word for word in _words(path, parser) if word not in known]:
            lines.append(f"complete -c scaseg -n '{when}' -a '{' '.join(rest)}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
