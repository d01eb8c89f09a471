"""From plain values (YAML, command line) to dataclasses: every fault named by its key's path."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

Config = TypeVar("Config")


class Text(str):
    """A value from the command line: text, until the type of its key says what it is."""


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
        inner = what_fits(arguments[0], facts).replace("a ", "", 1)
        return f"a list of {len(arguments)}, each a {inner}"
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
        value = _parse(value, sequence=origin is tuple)
    if origin is tuple:
        return _convert_tuple(arguments, value, facts)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise TypeError
        kinds = arguments
        return {_convert(kinds[0], k, {}): _convert(kinds[1], v, {}) for k, v in value.items()}
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


def _parse(text: Text, *, sequence: bool) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError from None
    if sequence and isinstance(value, (str, int, float)):
        return [yaml.safe_load(part) for part in text.split(",")]  # --data.classes sky,tree
    return value


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
    return f"{path}.{key}" if path else str(key)
