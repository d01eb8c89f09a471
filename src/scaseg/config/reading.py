"""From plain values (YAML, command line) to dataclasses: every fault named by its key's path."""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

Config = TypeVar("Config")


class Text(str):
    """A value from the command line: text, until the type of its key says what it is."""


class Loader(yaml.SafeLoader):
    """YAML as people mean it: 1e-3 is a number, yes, no and 12:30 are words, no key comes twice.

    Nor is anything said once and meant often: a few lines of aliases can stand for gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            line, name = event.start_mark.line + 1, getattr(event, "anchor", "")
            raise ValueError(f"line {line}: an alias (*{name}); write out what it stands for")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below, with its line
            if key in seen:  # the first would be lost without a word
                line = key_node.start_mark.line + 1
                raise ValueError(f"line {line}: the key {key} is given twice; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if ":" in node.value or len(node.value) > 80:  # asked for by a tag
            raise ValueError(f"line {node.start_mark.line + 1}: not a whole number; mend it")
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
    """Read a value in YAML; ValueError says in one line what is wrong, and where."""
    try:
        return yaml.load(text, Loader=Loader)
    except yaml.MarkedYAMLError as fault:
        line = "" if fault.problem_mark is None else f"line {fault.problem_mark.line + 1}: "
        raise ValueError(f"{line}not YAML ({fault.problem}); mend it") from fault
    except yaml.YAMLError as fault:
        raise ValueError(f"not YAML ({str(fault).splitlines()[0]}); mend it") from fault
    except ValueError as fault:
        if "; " in str(fault):  # our own
            raise
        raise ValueError(f"not YAML ({fault}); mend it") from fault  # 2001-99-99
    except RecursionError as fault:
        raise ValueError("not YAML of ours (nested too deeply); mend it") from fault


def setting(
    default: Any = MISSING,
    about: str = "",
    *,
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """Declare a field with what it is for and, for a number, its range."""
    facts = {"about": about, "least": least, "most": most}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=facts)
    return field(default=default, metadata=facts)


def read(kind: type[Config], plain: Any, path: str = "") -> Config:
    """Read a dataclass from a mapping; ValueError says `key.path: what came; what fits`."""
    if not isinstance(plain, Mapping):
        raise ValueError(f"{path or 'recipe'}: {_shown(plain)}; give a mapping of keys to values")
    known: dict[str, Field[Any]] = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for key in plain:
        if key not in known:
            raise ValueError(f"{_join(path, key)}: unknown key; {_suggestion(key, known)}")
    hints = get_type_hints(kind)
    values = {}
    for name, item in known.items():
        if name not in plain:
            continue
        where = _join(path, name)
        if is_dataclass(hints[name]):
            values[name] = read(hints[name], plain[name], where)
        else:
            values[name] = _read_value(hints[name], plain[name], where, item.metadata)
    return kind(**values)


def what_fits(hint: Any, facts: Mapping[str, Any]) -> str:
    """Describe the values of a type for people."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return f"{' or '.join(what_fits(kind, facts) for kind in kinds)}, or null"
    if origin is Literal:
        return f"one of {', '.join(str(choice) for choice in arguments)}"
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"a list, each {what_fits(arguments[0], facts)}"
        return f"a list of {len(arguments)}, each {what_fits(arguments[0], facts)}"
    if origin is dict:
        return "a mapping" + (" of whole numbers" if arguments[0] is int else "")
    if hint is bool:
        return "true or false"
    if hint is str:
        return "text"
    return ("a whole number" if hint is int else "a number") + _range(facts)


def _read_value(hint: Any, value: Any, where: str, facts: Mapping[str, Any]) -> Any:
    try:
        return _convert(hint, value, facts)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where}: {_shown(value)}; give {what_fits(hint, facts)}") from None


def _convert(hint: Any, value: Any, facts: Mapping[str, Any]) -> Any:
    """Convert or raise; the caller says what fits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_optional(arguments, value, facts)
    if origin is Literal:
        return next(choice for choice in _all(arguments) if str(choice) == str(value))
    if hint is str:
        if not isinstance(value, str):
            raise TypeError
        return str(value)
    if isinstance(value, Text):
        value = _parse_list(value) if origin is tuple else parse(value)
    if origin is tuple:
        return _convert_tuple(arguments, value, facts)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise TypeError
        return {
            # JSON has text for keys, whatever they were
            _convert(arguments[0], Text(key) if isinstance(key, str) else key, {}): _convert(
                arguments[1], inner, {}
            )
            for key, inner in value.items()
        }
    if hint is Any:
        return value
    if hint is bool:
        if not isinstance(value, bool):
            raise TypeError
        return value
    return _convert_number(hint, value, facts)


def _all(choices: tuple[Any, ...]) -> Any:
    yield from choices
    raise ValueError  # none of them


def _convert_optional(arguments: tuple[Any, ...], value: Any, facts: Mapping[str, Any]) -> Any:
    if value is None or (isinstance(value, Text) and value.strip().lower() in ("null", "~")):
        return None
    for kind in arguments:
        if kind is not type(None):
            try:
                return _convert(kind, value, facts)
            except (TypeError, ValueError):
                continue
    raise TypeError


def _convert_tuple(arguments: tuple[Any, ...], value: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, (str, Mapping)) or not hasattr(value, "__len__"):
        raise TypeError
    if arguments[-1] is Ellipsis:
        return tuple(_convert(arguments[0], item, facts) for item in value)
    if len(value) != len(arguments):
        raise ValueError
    return tuple(_convert(kind, item, facts) for kind, item in zip(arguments, value, strict=True))


def _convert_number(hint: Any, value: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, bool):
        raise TypeError
    if hint is float and isinstance(value, str):
        value = float(value)  # YAML takes 1e-3 for text: it wants 1.0e-3
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError
    number = hint(value)
    if number != value:
        raise ValueError  # a fraction where a whole number fits
    least, most = facts.get("least"), facts.get("most")
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError
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


def _range(facts: Mapping[str, Any]) -> str:
    least, most = facts.get("least"), facts.get("most")
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f" >= {least}" if least is not None else f" <= {most}" if most is not None else ""


def _suggestion(key: object, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(key), known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"{guess}the keys here are {', '.join(known)}"


def _shown(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _join(path: str, key: object) -> str:
    name = str(key) if len(str(key)) <= 60 else f"{str(key)[:57]}..."
    return f"{path}.{name}" if path else name
