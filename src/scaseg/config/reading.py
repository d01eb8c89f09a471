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

Config = TypeVar("Config")


class Text(str):
    """A value from the command line: text, until the type of its key says what it is."""


class Loader(yaml.SafeLoader):
    """YAML as people mean it: 1e-3 is a number, yes, no and 12:30 are words, no key comes twice.

    Aliases are refused: a few lines of them can stand for gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            line, name = event.start_mark.line + 1, getattr(event, "anchor", "")
            raise UserError(f"line {line}", f"an alias (*{name})", "write out what it stands for")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below, with its line
            if key in seen:  # the first would be lost without a word
                line = key_node.start_mark.line + 1
                raise UserError(f"line {line}", f"the key {key} is given twice", "keep one")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if ":" in node.value or len(node.value) > 80:  # asked for by a tag
            line = node.start_mark.line + 1
            raise UserError(f"line {line}", "not a whole number", "write it in digits")
        return super().construct_yaml_int(node)


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads, short lists in one line."""


BOOL, FLOAT, INT = (f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int"))
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (BOOL, FLOAT, INT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# not 1:30 in base 60, which YAML 1.1 has, nor numbers of a thousand digits
Loader.add_implicit_resolver(
    INT,
    re.compile(r"[-+]?(0b[01_]{1,64}|0x[0-9a-fA-F_]{1,32}|0[0-7_]{0,32}|[1-9][0-9_]{0,63})\Z"),
    list("-+0123456789"),
)
Loader.add_implicit_resolver(
    FLOAT,
    re.compile(
        r"([-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"
    ),
    list("-+0123456789."),
)
Loader.add_implicit_resolver(
    BOOL, re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
Loader.add_constructor(INT, Loader.construct_yaml_int)
for _kind in (Loader, Dumper):  # the one reads 1e-3 as a number, so the other quotes it as text
    _kind.add_implicit_resolver(
        FLOAT,
        re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z"),
        list("-+.0123456789"),
    )
Dumper.add_representer(
    list,
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
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}"
        raise UserError(line, f"invalid YAML ({error.problem})", "fix it") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: 2001-99-99
        raise UserError("", f"invalid YAML ({str(error).splitlines()[0]})", "fix it") from error
    except RecursionError as error:
        raise UserError("", "invalid YAML (nested too deeply)", "fix it") from error


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
    for key in plain:
        if key not in known:
            near = nearest(str(key), known)
            guess = f"did you mean {near}? " if near else ""
            remedy = f"{guess}the keys here are {', '.join(known)}"
            raise UserError(_join(path, key), "unknown key", remedy)
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name in known.keys() & plain.keys():
        where, facts = _join(path, name), known[name].metadata
        if is_dataclass(hints[name]):
            values[name] = read(hints[name], plain[name], where)
            continue
        try:
            values[name] = _convert(hints[name], plain[name], facts)
        except (TypeError, ValueError, OverflowError):
            choices = choices_of(hints[name], facts)
            if choices and isinstance(plain[name], str):
                raise UserError.choice(where, str(plain[name]), choices) from None
            fits = f"give {what_fits(hints[name], facts)}"
            raise UserError(where, _shown(plain[name]), fits) from None
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
        return choices[choices.index(str(value))]
    if hint is str:
        return str(_expect(value, str))
    if isinstance(value, Text):
        value = _parse_list(value) if origin is tuple else parse(value)
    if origin is tuple:
        if isinstance(value, (str, Mapping)) or not hasattr(value, "__len__"):
            raise TypeError
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_convert(*pair, facts) for pair in zip(kinds, value, strict=True))
    if origin is dict:
        # JSON has text for keys, whatever they were
        return {
            _convert(arguments[0], Text(key) if isinstance(key, str) else key, {}): _convert(
                arguments[1], inner, {}
            )
            for key, inner in _expect(value, Mapping).items()
        }
    if hint is Any:
        return value
    if hint is bool:
        return _expect(value, bool)
    return _convert_number(hint, value, facts)


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _convert_number(hint: Any, value: Any, facts: Mapping[str, Any]) -> Any:
    if hint is float and isinstance(value, str):
        value = float(value)  # "1e-3" in quotes
    if isinstance(value, bool) or not math.isfinite(_expect(value, (int, float))):  # type: ignore[arg-type]
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
            return _as_text(yaml.load(text, Loader=yaml.BaseLoader))
        except (yaml.YAMLError, RecursionError):
            raise ValueError from None
    parts = [Text(part.strip()) for part in text.split(",")]  # --data.classes sky,tree
    if not all(parts):
        raise ValueError
    return parts


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    return Text(value) if isinstance(value, str) else value


def _shown(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _join(path: str, key: object) -> str:
    name = str(key) if len(str(key)) <= 60 else f"{str(key)[:57]}..."
    return f"{path}.{name}" if path else name
