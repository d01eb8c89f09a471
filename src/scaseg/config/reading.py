"""Read dataclasses from plain values (YAML, JSON, command line); errors name the key's path."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from scaseg.errors import UserError, nearest
from scaseg.registry import Registry

Config = TypeVar("Config")
# what a value of a type may come as, where it is not the type itself
ACCEPTED: dict[Any, Any] = {tuple: Iterable, dict: Mapping, int: int | float, float: int | float}
ACCEPTED[Any] = object


class Text(str):
    """A value from the command line: text, until the type of its key says what it is."""


class Loader(yaml.SafeLoader):
    """YAML as people mean it: 1e-3 is a number, yes, no and 12:30 are words, no key comes twice.

    Aliases are refused: a few lines of them can stand for gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            problem = f"an alias (*{getattr(event, 'anchor', '')})"
            raise UserError(_line(event.start_mark), problem, "write out what it stands for")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below, with its line
            if key in seen:  # the first would be lost without a word
                problem = f"the key {key} is given twice"
                raise UserError(_line(key_node.start_mark), problem, "keep one")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if ":" in node.value or len(node.value) > 80:  # asked for by a tag
            raise UserError(_line(node.start_mark), "not a whole number", "write it in digits")
        return super().construct_yaml_int(node)


class TextLoader(yaml.BaseLoader):
    """YAML whose scalars are all text, until their types say what they are."""

    def construct_scalar(self, node: yaml.ScalarNode) -> Text:
        return Text(super().construct_scalar(node))


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads, lists in one line."""


def _line(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}"


BOOL, FLOAT, INT = (f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int"))
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (BOOL, FLOAT, INT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    # not 1:30 in base 60, which YAML 1.1 has, nor numbers of a thousand digits
    (INT, r"[-+]?(0b[01_]{1,64}|0x[0-9a-fA-F_]{1,32}|0[0-7_]{0,32}|[1-9][0-9_]{0,63})", ""),
    (FLOAT, r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?", "."),
    (FLOAT, r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "."),
    (BOOL, "true|True|TRUE|false|False|FALSE", "tTfF"),
):
    Loader.add_implicit_resolver(_tag, re.compile(rf"({_pattern})\Z"), [*"-+0123456789", *_first])
for _kind in (Loader, Dumper):  # the one reads 1e-3 as a number, so the other quotes it as text
    _exponent = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z")
    _kind.add_implicit_resolver(FLOAT, _exponent, list("-+.0123456789"))
Loader.add_constructor(INT, Loader.construct_yaml_int)
for _list in (list, tuple):
    Dumper.add_representer(
        _list,
        lambda dumper, values: dumper.represent_sequence(
            "tag:yaml.org,2002:seq", values, flow_style=True
        ),
    )


def parse(text: str) -> Any:
    """Read a value in YAML; UserError says in one line what is wrong, and in which line."""
    try:
        return yaml.load(text, Loader=Loader)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: 2001-99-99
        place = _line(getattr(error, "problem_mark", None))
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        detail = "nested too deeply" if isinstance(error, RecursionError) else problem
        raise UserError(place, "invalid YAML", "fix it", detail) from error


def setting(
    default: Any = MISSING,
    about: str = "",
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Iterable[str] | None = None,
) -> Any:
    """Declare a field: what it is for and, for a number, its range; for text, the choices."""
    facts = {"about": about, "least": least, "most": most, "choices": choices}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=facts)
    return field(default=default, metadata=facts)


def read(kind: type[Config], plain: Any, path: str = "") -> Config:
    """Read a dataclass from a mapping; UserError names the key's path, what came and what fits."""
    if not isinstance(plain, Mapping):
        raise UserError(path or "recipe", _shown(plain), "give a mapping of keys to values")
    known: dict[str, Field[Any]] = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    hints, values = get_type_hints(kind), dict[str, Any]()
    for key, value in plain.items():
        where = _short(str(key)) if not path else f"{path}.{_short(str(key))}"
        if key not in known:
            near = nearest(str(key), known)
            guess = f"did you mean {near}? " if near else ""
            raise UserError(where, "unknown key", f"{guess}the keys here are {', '.join(known)}")
        hint, facts = hints[key], known[key].metadata
        if is_dataclass(hint):
            values[key] = read(hint, value, where)  # type: ignore[arg-type]
            continue
        try:
            values[key] = _convert(hint, value, facts)
        except (TypeError, ValueError, OverflowError):
            choices = choices_of(hint, facts)
            if choices and isinstance(value, str):
                listed = facts.get("choices")  # of a registry, with what it cannot list one by one
                listed = listed.choices() if isinstance(listed, Registry) else choices
                raise UserError.choice(where, str(value), listed) from None
            raise UserError(where, _shown(value), f"give {what_fits(hint, facts)}") from None
    return kind(**values)


def choices_of(hint: Any, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The values that a setting can have, where they can be listed."""
    if get_origin(hint) is Literal:
        return tuple(str(choice) for choice in get_args(hint))
    return tuple(facts.get("choices") or ())


def what_fits(hint: Any, facts: Mapping[str, Any]) -> str:
    """Describe the values of a type for people."""
    origin, arguments = get_origin(hint), get_args(hint)
    if choices := choices_of(hint, facts):
        return f"one of {', '.join(choices)}"
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return f"{' or '.join(what_fits(kind, facts) for kind in kinds)}, or null"
    if origin is tuple:
        length = "" if arguments[-1] is Ellipsis else f" of {len(arguments)}"
        return f"a list{length}, each {what_fits(arguments[0], facts)}"
    if origin is dict:
        return "a mapping" + (" of whole numbers, such as {255: 1}" if arguments[0] is int else "")
    if hint in (bool, str):
        return "true or false" if hint is bool else "text"
    least, most = facts.get("least"), facts.get("most")
    limits = f" >= {least}" if least is not None else f" <= {most}" if most is not None else ""
    if least is not None and most is not None:
        limits = f" from {least} to {most}"
    return ("a whole number" if hint is int else "a number") + limits


def _convert(hint: Any, value: Any, facts: Mapping[str, Any]) -> Any:
    """Convert, or raise TypeError, ValueError or OverflowError: the caller says what fits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None or (isinstance(value, Text) and value.strip().lower() in ("null", "~")):
            return None
        (kind,) = (kind for kind in arguments if kind is not type(None))
        return _convert(kind, value, facts)
    if choices := choices_of(hint, facts):
        if str(value) not in (
            facts.get("choices") or choices
        ):  # a registry knows more than it lists
            raise ValueError
        return str(value)
    if isinstance(value, Text) and hint is not str:
        value = _parse_list(value) if origin is tuple else parse(value)
    if hint is float and isinstance(value, str):
        value = float(value)  # "1e-3" in quotes
    if not isinstance(value, ACCEPTED.get(origin or hint, hint)):
        raise TypeError
    if origin is tuple:
        if isinstance(value, (str, Mapping)):
            raise TypeError
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_convert(*pair, facts) for pair in zip(kinds, value, strict=True))
    if origin is dict:
        # JSON has text for keys, whatever they were
        keys = (Text(key) if isinstance(key, str) else key for key in value)
        pairs = zip(keys, value.values(), strict=True)
        return {
            _convert(arguments[0], key, {}): _convert(arguments[1], inner, {})
            for key, inner in pairs
        }
    if hint in (int, float):
        return _check_number(hint, value, facts)
    return str(value) if hint is str else value


def _check_number(hint: Any, value: float, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, bool) or not math.isfinite(value):
        raise TypeError
    number = hint(value)
    least, most = facts.get("least"), facts.get("most")
    too_low = least is not None and number < least
    if number != value or too_low or (most is not None and number > most):
        raise ValueError  # a fraction where a whole number fits, or out of range
    return number


def _parse_list(text: Text) -> Any:
    """Split a list in brackets, or by commas: its entries are text until their type says more."""
    if text.lstrip().startswith("["):
        try:
            return yaml.load(text, Loader=TextLoader)
        except (yaml.YAMLError, RecursionError):
            raise ValueError from None
    parts = [Text(part.strip()) for part in text.split(",")]  # --data.classes sky,tree
    if not all(parts):
        raise ValueError
    return parts


def _shown(value: Any) -> str:
    return _short(repr(str(value)) if isinstance(value, str) else repr(value))


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
