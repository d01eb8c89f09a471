"""The example that ends a help text: lines that fit the terminal and can be pasted."""

from __future__ import annotations

import re
import textwrap

_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")  # quoted spaces do not end one


def split_epilog(epilog: str | None) -> tuple[str | None, str]:
    """Take `example: COMMAND; a note` apart: the command and the note.

    >>> split_epilog("example: scaseg data list; --json for scripts")
    ('scaseg data list', '--json for scripts')
    """
    found = re.fullmatch(r"example: (.+?)(?:; (.*))?", epilog or "", re.DOTALL)
    return (None, epilog or "") if found is None else (found[1], found[2] or "")


def format_epilog(example: str | None, note: str, width: int) -> str:
    r"""Lay both out; a long command goes on in the next line as a shell reads it.

    >>> print(format_epilog("scaseg data check masks --workers 2", "", 32), end="")
    example: scaseg data check \
        masks --workers 2
    """
    parts = [] if example is None else [_format_command(f"example: {example}", width)]
    if note:
        parts.append(textwrap.fill(note, width, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n" if parts else ""


def _format_command(command: str, width: int) -> str:
    first, *others = _pieces(command)
    lines = [first]
    for piece in others:
        if len(lines[-1]) + len(piece) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
        else:
            lines[-1] += f" {piece}"
    return "\n".join(lines)


def _pieces(command: str) -> list[str]:
    """Words, an option together with the value that follows it."""
    pieces: list[str] = []
    for word in _WORD.findall(command):
        if pieces and re.fullmatch(r"--?[\w.-]+", pieces[-1]) and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces
