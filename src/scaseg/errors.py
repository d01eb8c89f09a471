"""The errors that users see, and the one place that words them.

Raise `UserError` for bad input (exit code 2) and `WorkError` for a fault during work (exit code
1). Both carry data: where, what is wrong, what to do. Nothing ever parses the text again.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

# what people type for our words, where spelling would suggest something else (gpu is near cpu)
SYNONYMS = {"gpu": "cuda", "metal": "mps", "fp16": "16", "fp32": "32", "bfloat16": "bf16"}
LONG, LONGEST = 300, 660  # characters of a word, and of a message, before they are shortened
SOME = 8  # names that a list in words has
LONGEST_REMEDY = 4000  # where settings stand in it, they can be pasted as a whole

Place = str | os.PathLike[str]


class _PlacedError(Exception):
    r"""What both errors share: place, problem, remedy, and how they are worded.

    `detail` belongs to the problem, in parentheses: the words of a library, a value. Problems of
    one kind differ in it alone. A place may be any name: what a terminal would obey is escaped.

    >>> WorkError("a\x1b[31m.png", "is gone").place
    'a\\x1b[31m.png'
    """

    def __init__(self, place: Place, problem: str, remedy: str = "", detail: str = "") -> None:
        place = shown(place)
        super().__init__(place, problem, remedy, detail)  # pickle hands it to __init__
        self.place = place
        self.problem = problem
        self.remedy = remedy
        self.detail = detail

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{where}{self.problem}{detail}" + (f"; {self.remedy}" if self.remedy else "")

    @classmethod
    def cannot_be(cls, done: str, place: Place, error: Exception, remedy: str = "") -> Self:
        """A file that cannot be read or written, and the reason that the system gives.

        >>> str(UserError.cannot_be("written", "out", PermissionError(13, "Permission denied")))
        'out: cannot be written (Permission denied)'
        """
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return cls(place, f"cannot be {done}", remedy, reason)

    def within(self, place: Place, separator: str = ": ") -> Self:
        """Return the same error seen from further out: its place comes after `place`."""
        outer = os.fspath(place)
        where = f"{outer}{separator}{self.place}" if self.place else outer
        return type(self)(where, self.problem, self.remedy, self.detail)


class UserError(_PlacedError, ValueError):
    """Bad input. A ValueError, so that library users catch what they expect.

    >>> raise UserError("labels/007.png", "has 3 channels", "convert it with scaseg data prepare")
    Traceback (most recent call last):
    scaseg.errors.UserError: labels/007.png: has 3 channels; convert it with scaseg data prepare
    """

    @classmethod
    def choice(cls, place: Place, value: object, choices: Iterable[object]) -> Self:
        """A value that is not among the choices, with the nearest one suggested.

        >>> str(UserError.choice("--context", "scaa", ["none", "average", "sca"]))
        "--context: 'scaa'; did you mean sca? give one of none, average, sca"
        """
        names = [str(choice) for choice in choices]
        near = nearest(str(value), names)
        guess = f"did you mean {_visible(near)}? " if near else ""
        return cls(place, f"{value!r}", f"{guess}give one of {', '.join(map(_visible, names))}")


class WorkError(_PlacedError, RuntimeError):
    """A fault during work: the place is a path or a step."""


@contextmanager
def located(place: Place, separator: str = ": ") -> Iterator[None]:
    """Name the place of errors raised inside: an option, a file, a key of a recipe.

    >>> with located("--model"):
    ...     raise UserError("runs/first", "has no config.json")
    Traceback (most recent call last):
    scaseg.errors.UserError: --model: runs/first: has no config.json
    """
    try:
        yield
    except _PlacedError as error:
        raise error.within(place, separator) from error


@contextmanager
def as_options() -> Iterator[None]:
    """Name arguments in errors as the options of a command: context_scope is --context-scope."""
    try:
        yield
    except _PlacedError as error:
        option = f"--{error.place.replace('_', '-')}"
        raise type(error)(option, *error.args[1:]) from error


def shown(path: Place) -> str:
    r"""Write a name in one line that a terminal shows as it is: control characters are escaped.

    >>> shown("holi\nday.jpg")
    'holi\\x0aday.jpg'
    """
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in os.fspath(path))


def _escaped(sign: str) -> str:
    code = ord(sign)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` was probably meant to be, or None.

    >>> nearest("trian", ["train", "evaluate"])
    'train'
    """
    words = list(known)
    if SYNONYMS.get(word.lower()) in words:
        return SYNONYMS[word.lower()]
    return next(iter(difflib.get_close_matches(word, words, n=1)), None)


def _visible(name: str) -> str:
    """Quote a name where its ends would not show: 'car '."""
    return name if name and name == name.strip() else repr(name)


def one_line(message: str, longest: int = LONGEST) -> str:
    r"""Return a message as one printable line of bounded length, whatever files put into it.

    >>> one_line("a\x1b[31m b\nc")
    'a\\x1b[31m b c'
    """
    words = [
        word if len(word) <= LONG else f"{word[:40]}...{word[-40:]}" for word in message.split()
    ]
    text = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in " ".join(words)
    )
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def plural(count: int, noun: str) -> str:
    """Return a count in words.

    >>> plural(1, "image"), plural(0, "class")
    ('1 image', '0 classes')
    """
    return f"{count} {noun}" + ("" if count == 1 else "es" if noun.endswith("s") else "s")


def some_of(names: Sequence[str]) -> str:
    """Return a list of names in words, without the last of many."""
    more = f" and {len(names) - SOME} more" if len(names) > SOME else ""
    return f"{', '.join(names[:SOME])}{more}"
