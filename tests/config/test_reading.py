"""Every kind of field, what it takes and what it refuses, with the key's path and what fits."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import pytest
import yaml

from scaseg.config.reading import Dumper, Text, parse, read, setting, what_fits
from scaseg.config.run import DataConfig, RunConfig


@dataclass(frozen=True)
class Inner:
    whole: int = setting(3, "a whole number", least=1, most=9)
    number: float = setting(0.5, "a number", least=0)
    rate: float | None = setting(None, "a number or nothing", most=1)
    yes: bool = setting(False, "a truth")
    text: str = setting("a", "words")
    place: str | None = setting(None, "words or nothing")
    choice: Literal["32", "bf16"] = setting("32", "one of several")
    pair: tuple[int, int] | None = setting(None, "two", least=8)
    names: tuple[str, ...] | None = setting(None, "some")
    colors: tuple[tuple[int, int, int], ...] = setting((), "some", least=0, most=255)
    table: dict[int, int] = setting({}, "values")  # noqa: RUF009 (makes a field)
    options: dict[str, Any] = setting({}, "anything")  # noqa: RUF009


@dataclass(frozen=True)
class Outer:
    part: Inner = field(default_factory=Inner)


def value(key, plain):
    return getattr(read(Outer, {"part": {key: plain}}).part, key)


@pytest.mark.parametrize(
    ("key", "plain", "expected"),
    [
        ("whole", 9, 9),
        ("whole", 4.0, 4),
        ("number", 2, 2.0),
        ("number", "1e-3", 0.001),
        ("rate", None, None),
        ("rate", -4, -4.0),
        ("yes", True, True),
        ("text", "2010", "2010"),
        ("place", None, None),
        ("place", "null", "null"),
        ("choice", 32, "32"),
        ("choice", "bf16", "bf16"),
        ("pair", [8, 9], (8, 9)),
        ("pair", None, None),
        ("names", [], ()),
        ("names", ["sky", "tree"], ("sky", "tree")),
        ("colors", [[0, 1, 2], [3, 4, 255]], ((0, 1, 2), (3, 4, 255))),
        ("table", {255: 1}, {255: 1}),
        ("table", {"255": 1}, {255: 1}),  # as JSON gives it back
        ("options", {"gamma": 2, "list": [1, None]}, {"gamma": 2, "list": [1, None]}),
    ],
)
def test_values_of_a_recipe(key, plain, expected):
    found = value(key, plain)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("whole", "4", 4),
        ("whole", "4.0", 4),
        ("number", "1e-3", 0.001),
        ("number", "5", 5.0),
        ("rate", "null", None),
        ("rate", "1e-2", 0.01),
        ("yes", "true", True),
        ("text", "null", "null"),
        ("text", "", ""),
        ("place", "2010", "2010"),
        ("place", "null", None),
        ("place", "~", None),
        ("place", "true", "true"),
        ("place", "[a", "[a"),
        ("choice", "32", "32"),
        ("pair", "[16, 8]", (16, 8)),
        ("pair", "16,8", (16, 8)),
        ("pair", "NULL", None),
        ("names", "sky,tree", ("sky", "tree")),
        ("names", "sky, sea side", ("sky", "sea side")),
        ("names", "sky", ("sky",)),
        ("names", "[sky, 'tree, old']", ("sky", "tree, old")),
        ("names", "no,yes", ("no", "yes")),  # the classes of a mask: YAML's false and true
        ("names", "[no, yes]", ("no", "yes")),
        ("names", "1,2", ("1", "2")),
        ("names", "a,[b", ("a", "[b")),
        ("names", "[]", ()),
        ("colors", "[[0, 1, 2], [3, 4, 5]]", ((0, 1, 2), (3, 4, 5))),
        ("table", "{255: 1}", {255: 1}),
        ("table", "{}", {}),
        ("options", "{eps: 1e-8, betas: [0.9, 1]}", {"eps": 1e-8, "betas": [0.9, 1]}),
    ],
)
def test_values_from_the_command_line(key, text, expected):
    found = value(key, Text(text))
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(found, tuple) and found and isinstance(found[0], str):
        assert all(type(name) is str for name in found)  # what is saved, and pickled


WHOLE = "give a whole number from 1 to 9"
REFUSED = [
    ("whole", 0, WHOLE),
    ("whole", 10, WHOLE),
    ("whole", 1.5, WHOLE),
    ("whole", "3", WHOLE),
    ("whole", True, WHOLE),
    ("whole", None, WHOLE),
    ("whole", [3], WHOLE),
    ("whole", 10**400, WHOLE),
    ("whole", float("inf"), WHOLE),
    ("number", -0.1, "give a number >= 0"),
    ("number", "a lot", "give a number >= 0"),
    ("number", float("nan"), "give a number >= 0"),
    ("number", "inf", "give a number >= 0"),
    ("number", 10**400, "give a number >= 0"),
    ("rate", 1.1, "give a number <= 1, or null"),
    ("rate", float("-inf"), "give a number <= 1, or null"),
    ("yes", 1, "give true or false"),
    ("yes", "yes", "give true or false"),
    ("text", 2010, "give text"),
    ("text", None, "give text"),
    ("place", 2010, "give text, or null"),
    ("choice", "16", "give one of 32, bf16"),
    ("choice", None, "give one of 32, bf16"),
    ("pair", [8], "give a list of 2, each a whole number >= 8, or null"),
    ("pair", [8, 7], "give a list of 2, each a whole number >= 8, or null"),
    ("pair", 8, "give a list of 2"),
    ("pair", "88", "give a list of 2"),
    ("names", "sky", "give a list, each text, or null"),
    ("names", ["sky", 3], "give a list, each text, or null"),
    ("names", {"sky": 1}, "give a list, each text, or null"),
    ("colors", [[0, 1]], "give a list, each a list of 3, each a whole number from 0 to 255"),
    ("colors", [[0, 1, 256]], "give a list, each a list of 3"),
    ("table", {"a": 1}, "give a mapping of whole numbers"),
    ("table", {1: None}, "give a mapping of whole numbers"),
    ("table", [1, 2], "give a mapping of whole numbers"),
    ("options", [1], "give a mapping"),
    ("options", {1: 2}, "give a mapping"),
    ("whole", Text("1.5"), WHOLE),
    ("whole", Text("null"), WHOLE),
    ("whole", Text("[1"), WHOLE),
    ("number", Text(".nan"), "give a number >= 0"),
    ("yes", Text("1"), "give true or false"),
    ("pair", Text("[8, 8"), "give a list of 2"),
    ("pair", Text("8,8,8"), "give a list of 2"),
    ("names", Text("sky,,tree"), "give a list, each text, or null"),
    ("names", Text(""), "give a list, each text, or null"),
    ("table", Text("255: 1: 2"), "give a mapping of whole numbers"),
    ("options", Text("{a: 1, a: 2}"), "give a mapping"),
]


@pytest.mark.parametrize(("key", "plain", "fits"), REFUSED, ids=repr)
def test_what_does_not_fit_names_its_path_and_what_does(key, plain, fits):
    with pytest.raises(ValueError, match=rf"^part\.{key}: ") as caught:
        value(key, plain)
    said = str(caught.value)
    assert fits in said
    assert "\n" not in said
    assert len(said) < 200


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"parts": {}}, r"parts: unknown key; did you mean part\? the keys here are part"),
        ({"part": {"hole": 1}}, r"part.hole: unknown key; did you mean whole\? the keys here are"),
        ({"part": {"zz": 1}}, "part.zz: unknown key; the keys here are whole, number, rate"),
        ({"part": {1: 1}}, "part.1: unknown key"),
        ({"part": None}, "part: None; give a mapping of keys to values"),
        ({"part": [1]}, r"part: \[1\]; give a mapping of keys to values"),
        ([1], r"recipe: \[1\]; give a mapping of keys to values"),
        ("text", "recipe: 'text'; give a mapping of keys to values"),
    ],
)
def test_unknown_keys_and_shapes(plain, said):
    with pytest.raises(ValueError, match=f"^{said}") as caught:
        read(Outer, plain)
    assert "\n" not in str(caught.value)


def test_what_is_not_given_keeps_its_default():
    assert read(Outer, {}) == Outer()
    assert read(Outer, {"part": {"whole": 5}}) == Outer(replace(Inner(), whole=5))


def test_default_mappings_are_not_shared():
    first, second = Inner(), Inner()
    first.table[1] = 2
    assert second.table == {}


def test_json_gives_the_same_run_back():
    """config.json of a model keeps the recipe, and `evaluate` reads its data from there."""
    run = RunConfig(data=DataConfig(label_map={255: 1, 3: 0}, classes=("no", "yes")))
    assert read(RunConfig, json.loads(json.dumps(asdict(run)))) == run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("-2E5", -2e5),
        ("1.5e3", 1500.0),
        (".5e3", 500.0),
        ("1.0e-3", 0.001),
        ("1e", "1e"),
        ("1e5a", "1e5a"),
        ("true", True),
        ("False", False),
        ("trueish", "trueish"),
        ("yes", "yes"),
        ("off", "off"),
        ("null", None),
        ("[no, 1]", ["no", 1]),
    ],
)
def test_yaml_is_read_as_people_mean_it(text, expected):
    found = parse(text)
    assert found == expected
    assert type(found) is type(expected)
    assert parse(yaml.dump({"key": expected}, Dumper=Dumper)) == {"key": expected}
    assert parse(yaml.dump({"key": text}, Dumper=Dumper)) == {"key": text}  # quoted where it must


@pytest.mark.parametrize(
    "text", ["[1", "{a: 1, a: 2}", "? [a]\n: 1", "a\x00", "!!python/name:os.x"]
)
def test_what_is_no_yaml_is_said_in_one_line(text):
    with pytest.raises(ValueError, match="; ") as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_what_fits_says_each_kind():
    assert what_fits(dict[str, Any], {}) == "a mapping"
    assert what_fits(int, {}) == "a whole number"
    assert what_fits(float | None, {"least": 0, "most": 1}) == "a number from 0 to 1, or null"
