import pytest

from scaseg.cli.settings import split_keys
from scaseg.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "rest", "keys"),
    [
        ("", [], {}),
        ("--a.b v", [], {"a.b": "v"}),
        ("--a.b=v", [], {"a.b": "v"}),
        ("--a.b=", [], {"a.b": ""}),
        ("--a.b=x=y", [], {"a.b": "x=y"}),
        ("--a.b x=y", [], {"a.b": "x=y"}),
        ("--a.b -1", [], {"a.b": "-1"}),
        ("--a.b=-1", [], {"a.b": "-1"}),
        ("--a.b=--c", [], {"a.b": "--c"}),
        ("--a.b {255:1}", [], {"a.b": "{255:1}"}),
        ("--a.b.c_d.255 1", [], {"a.b.c_d.255": "1"}),
        ("--a.b-c 1", [], {"a.b-c": "1"}),  # no key has a hyphen: the recipe says so, by name
        ("train r.yaml --a.b 1 --out x", ["train", "r.yaml", "--out", "x"], {"a.b": "1"}),
        ("--a.b 1 train --c.d=2", ["train"], {"a.b": "1", "c.d": "2"}),
        ("--a.b 1 --a.b 2", [], {"a.b": "2"}),
        ("--out a.b --lr=1.5 -x.y", ["--out", "a.b", "--lr=1.5", "-x.y"], {}),
        ("--out x -- --a.b 1", ["--out", "x", "--", "--a.b", "1"], {}),
        ("--.b --a. --a..b", ["--.b", "--a.", "--a..b"], {}),
    ],
)
def test_keys_are_taken_out(arguments, rest, keys):
    assert split_keys(arguments.split()) == (rest, keys)


def test_values_keep_their_spaces_and_lines():
    assert split_keys(["--a.b=x\ny z", "--c.d", " [1, 2] "])[1] == {
        "a.b": "x\ny z",
        "c.d": " [1, 2] ",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--a.b", "--a.b: no value; give one after it"),
        ("train --c.d=1 --a.b", "--a.b: no value; give one after it"),
        ("--a.b --epochs 3", "--a.b: '--epochs' follows; give a value, or --a.b=--epochs"),
        ("--a.b --c.d 3", "--a.b: '--c.d' follows; give a value"),
    ],
)
def test_a_missing_value_is_said(arguments, said):
    with pytest.raises(UserError, match=f"^{said}"):
        split_keys(arguments.split())
