"""JSON and XML by strangers: read within limits; an error names the file and the place in it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from xml.parsers import expat

from scaseg.errors import UserError
from scaseg.io.paths import open_regular, shown

# bytes; COCO's largest file has 0.5 GB, LVIS's 1.2, and JSON takes about ten times that in memory
MOST_BYTES = 1 << 31
MOST_DEPTH = 64  # of elements in elements
SAMPLE = 1 << 16  # bytes at the start, in the middle and at the end, to see what a document is

T = TypeVar("T", str, int, float, list[Any], dict[str, Any])
_WORDS = {str: "a text", int: "a whole number", float: "a number", list: "a list"}
_WORDS[dict] = "a mapping"


class Node:
    """A mapping of a JSON document, and the place where it stands: `a.json: shapes[3]`."""

    def __init__(self, value: Any, place: str) -> None:
        self.place = place
        if not isinstance(value, dict):
            raise UserError(place, f"{_short(value)}", "give a mapping of names to values")
        self.value: dict[str, Any] = value

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return a value of this kind; the default where it is missing or null, if there is one."""
        value = self.value.get(key)
        if value is None and default is not None:
            return default
        fits = (int, float) if kind is float else kind
        if not isinstance(value, fits) or isinstance(value, bool):
            what = "nothing" if key not in self.value else _short(value)
            raise UserError(self.where(key), what, f"give {_WORDS[kind]}")
        return value

    def where(self, key: str) -> str:
        """Return the place of a key."""
        separator = "." if self.place.endswith("]") else ": "
        return f"{self.place}{separator}{key}"

    def each(self, key: str) -> Iterator[Node]:
        """Go through a list of mappings; one that is missing is empty."""
        for index, value in enumerate(self.get(key, list, [])):
            yield Node(value, f"{self.where(key)}[{index}]")


def read_json(path: Path) -> Node:
    """Read a JSON document, a mapping."""
    try:
        return Node(json.loads(_read(path)), shown(path))
    except UserError:
        raise
    except RecursionError as error:
        raise _invalid(path, "JSON", "nested too deeply") from error
    except json.JSONDecodeError as error:
        detail = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _invalid(path, "JSON", detail) from error
    except ValueError as error:  # not UTF-8, a number of ten thousand digits
        raise _invalid(path, "JSON", str(error)) from error


@dataclass(slots=True)
class Element:
    """An element of an XML document: its attributes, text, children, and the line it begins in.

    Errors have no place.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str) -> Iterator[Element]:
        """Go through the children with this tag."""
        return (child for child in self.children if child.tag == tag)

    def get(self, name: str, default: str | None = None) -> str:
        """Return an attribute; without a default it must be there."""
        value = self.attributes.get(name, default)
        if value is None:
            raise UserError("", f"<{self.tag}> has no {name}", "add it")
        return value

    def number(self, name: str, default: str | None = None) -> float:
        """Return an attribute that is a number."""
        text = self.get(name, default)
        with suppress(ValueError):
            if math.isfinite(number := float(text)):
                return number
        raise UserError("", f"{name}={_short(text)}", "give a number")


def read_xml(path: Path) -> Element:
    """Read an XML document. One that declares types or entities is refused: they expand."""
    root = Element("", {}, 0)
    stack = [root]
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > MOST_DEPTH:
            raise UserError(f"line {parser.CurrentLineNumber}", "elements nested too deeply")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        if not data.isspace():
            stack[-1].text += data

    def doctype(*_: Any) -> None:
        raise UserError(f"line {parser.CurrentLineNumber}", "a document type", "take it out")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(_read(path), True)
    except UserError as error:
        raise error.within(shown(path)) from error
    except (expat.ExpatError, ValueError, LookupError) as error:  # also an encoding that is none
        raise _invalid(path, "XML", str(error)) from error
    return root.children[0]


def sample(path: Path) -> bytes:
    """Return some of a file, to see what it is: all of it if it is small, empty if it is none."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            parts = []
            for at in sorted({0, max(size // 2 - SAMPLE // 2, 0), max(size - SAMPLE, 0)}):
                file.seek(at)
                parts.append(file.read(SAMPLE))
            return b"".join(parts)
    except (UserError, OSError):
        return b""


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise UserError(path, f"{size} bytes", f"{MOST_BYTES} are taken, split it")
        data = file.read(size)  # Python allocates as much as it is asked to read
    return re.sub(rb"\A\xef\xbb\xbf", b"", data) if data[:1] == b"\xef" else data


def _invalid(path: Path, kind: str, detail: str) -> UserError:
    return UserError(path, f"not valid {kind}", "export it again", detail)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
