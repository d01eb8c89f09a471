"""Pages about the Python names, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import scaseg

WIDTH = 76  # of a signature before it takes a line a parameter


# beside the public names: what they return and take, and what is used by its module's name
MODULES = (
    *("comparison.compare", "config.recipe", "config.run", "data.sample", "data.transforms"),
    *("errors", "explanation.maps", "explanation.occlusion", "explanation.selectivity"),
    *("inference.segmentation", "inference.tta", "losses", "metrics", "registry"),
    "training.evaluation",
)


def api_pages() -> dict[str, str]:
    """Give {page name: Markdown}: scaseg itself, then the modules that its names lead to."""
    pages = {"scaseg": _page(scaseg, [(name, getattr(scaseg, name)) for name in scaseg.__all__])}
    for name in MODULES:
        module = import_module(f"scaseg.{name}")
        pages[name] = _page(module, list(_public(module)))
    return pages


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a module defines."""
    for name, thing in vars(module).items():
        known = inspect.isclass(thing) or inspect.isfunction(thing)
        if known and not name.startswith("_") and thing.__module__ == module.__name__:
            yield name, thing


def _page(module: ModuleType, things: list[tuple[str, Any]]) -> str:
    parts = [f"# {module.__name__}", markdown(inspect.getdoc(module) or "")]
    for name, thing in things:
        parts += [f"## {name}", *_describe(name, thing)]
        if inspect.isclass(thing):
            for method, function in _methods(thing):
                parts += [f"### {name}.{method}", *_describe(method, function)]
    return "\n\n".join(parts) + "\n"


def _describe(name: str, thing: Any) -> Iterator[str]:
    if not isinstance(thing, property):
        yield f"```python\n{signature(name, thing)}\n```"
    written = inspect.getdoc(thing) or ""
    if not (is_dataclass(thing) and written.startswith(f"{name}(")):  # made by dataclass
        yield markdown(written)


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, thing in vars(kind).items():
        thing = getattr(thing, "__func__", thing)  # of class and static methods
        documented = inspect.isfunction(thing) or isinstance(thing, property)
        if documented and not name.startswith("_") and thing.__doc__:
            yield name, thing


def signature(name: str, thing: Any) -> str:
    """Write a call as its reader would type it."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parameters, star = [], False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parameters.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parameters.append(_parameter(parameter))
    returns = "" if inspect.isclass(thing) else _annotation(found.return_annotation, " -> ")
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        return line
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{name}(\n{lines}){returns}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = _annotation(parameter.annotation, ": ")
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{annotation}"
    default = repr(parameter.default)
    if default.startswith("<"):  # no literal: a factory, a function
        default = "..."
    equals = " = " if annotation else "="
    return f"{parameter.name}{annotation}{equals}{default}"


def _annotation(annotation: Any, before: str) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    annotation = getattr(annotation, "__forward_arg__", annotation)  # of a NamedTuple's fields
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return before + text


def markdown(text: str) -> str:
    r"""Turn a docstring into Markdown: its examples become blocks.

    >>> print(markdown("Add.\n\n>>> 1 + 1\n2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(
        f"```pycon\n{part}\n```" if part.startswith(">>> ") else part for part in paragraphs
    )
