"""Recipes by strangers: what is no run is refused, nothing of it runs, nothing is filled."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from scaseg.config.recipe import load_recipe
from tests.faults.catalogue import LIGHT, cases, refuse

TRAIN = ("train", "r.yaml", "--data", "data", "--out", "out", *LIGHT)
PLAIN = TRAIN[:-2]  # without an option of its own for the context
OWN_DATA = ("train", "r.yaml", "--out", "out", *LIGHT)


def laughs(indent=""):
    """Nine lines that stand for a gigabyte."""
    names = "abcdefghi"
    lines = [f"{indent}a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{indent}{name}: &{name} [{', '.join(['*' + before] * 9)}]"
        for before, name in pairwise(names)
    ]
    return "\n".join(lines) + "\n"


def row(name, text, said, arguments=TRAIN, **more):
    def write():
        content = text if isinstance(text, bytes) else text.encode()
        Path("r.yaml").write_bytes(content)

    return (name, arguments, said, write, *more.values())


def options(name, text, said):
    return row(name, f"model: {{context_options: {{{text}}}}}\n", said, PLAIN)


def sparse(size):
    with open("r.yaml", "wb") as file:
        file.truncate(size)


BAD = cases(
    row(
        "a tag that runs",
        "training: !!python/object/apply:os.system [touch pwned]\n",
        "line 1: invalid YAML",
    ),
    row(
        "a tag at the top",
        "!!python/object/new:os.system [touch pwned]\n",
        "invalid YAML (could not",
    ),
    row("a tag for a function", "data: !!python/name:os.system\n", "could not determine a constr"),
    row("a tag of one's own", "data: !mine {}\n", "could not determine a constructor"),
    row(
        "a billion laughs", laughs(), "r.yaml: line 2: an alias (*a); write out what it stands for"
    ),
    row("laughs in options", f"model:\n  context_options:\n{laughs('    ')}", "an alias (*a)"),
    row("a merge", "a: &a {x: 1}\ndata:\n  <<: *a\n", "line 3: an alias (*a)"),
    row("deep lists", "[" * 100_000, "nested too deeply"),
    row("deep steps", "- " * 5000 + "x", "nested too deeply"),
    row("a class path", "model: {class_path: os.system}\n", "model.class_path: unknown key; the"),
    row("a class for text", "training: {optimizer: {class_path: os.system}}\n", "give text"),
    row("an unknown section", "trainning: {epochs: 1}\n", "unknown key; did you mean training?"),
    row("escapes in a key", '"\\e[31mred": 1\n', "r.yaml: \\x1b[31mred: unknown key"),
    row("nan", "training: {lr: .nan}\n", "r.yaml: training.lr: nan; give a number >= 0"),
    row("inf", "training: {lr: .inf}\n", "training.lr: inf; give a number >= 0"),
    row("beyond inf", "training: {lr: 1e999}\n", "training.lr: inf; give a number >= 0"),
    row("negative", "training: {momentum: -3}\n", "training.momentum: -3; give a number from 0"),
    row("5000 digits", f"training: {{warmup: 1{'0' * 5000}}}\n", "give a whole number >= 0"),
    row("5000 hex digits", f"training: {{warmup: 0x{'f' * 5000}}}\n", "give a whole number >= 0"),
    row("base 60", f"training: {{warmup: 1{':1' * 300_000}}}\n", "give a whole number >= 0"),
    row("base 60 by a tag", f"training: {{warmup: !!int '1{':1' * 300_000}'}}\n", "not a whole n"),
    row("a list for a number", "training: {warmup: [1, 2]}\n", "training.warmup: [1, 2]; give a"),
    row("true for a number", "training: {warmup: true}\n", "training.warmup: True; give a whole"),
    row(
        "a date that is none", "training: {warmup: 2001-99-99}\n", "invalid YAML (month must be in"
    ),
    row("a number for a section", "training: 3\n", "training: 3; give a mapping of keys to values"),
    row("a list", "[1, 2]\n", "recipe: [1, 2]; give a mapping of keys to values"),
    row("a word", "hello\n", "recipe: 'hello'; give a mapping of keys to values"),
    row("a key twice", "data: {limit: 1}\ndata: {}\n", "line 2: the key data is given twice"),
    row("two documents", "data: {}\n---\ndata: {}\n", "but found another document"),
    row("noise", bytes(range(256)), "cannot be read ('utf-8' codec can't decode"),
    row("zeros", b"\0" * 4000, "unacceptable character #x0000"),
    row("Latin-1", "data: {classes: [é]}\n".encode("latin1"), "cannot be read ('utf-8' codec"),
    row("UTF-16", "data: {}\n".encode("utf16"), "cannot be read ('utf-8' codec"),
    ("100 MB", TRAIN, "100000000 bytes; a recipe has 1048576 at most", lambda: sparse(10**8)),
    ("a folder", ("train", "data", "--out", "out"), "data: a folder; give a recipe in YAML"),
    ("a device", ("train", "/dev/zero", "--out", "out"), "/dev/zero: no such file; give a recipe"),
    ("a photograph", ("train", "photo.png", "--out", "out"), "photo.png: cannot be read"),
    options("hidden 1e12", "hidden: 1000000000000", "give a whole number from 1 to 16384"),
    options("layers 1e9", "layers: 1000000000", "give a whole number from 0 to 1000"),
    options("layers 1000", "layers: 1000, hidden: 16384", "the network would take 999 GiB"),
    options("pairs 1e6", "pair_channels: 1048576", "pair_channels: 1048576; give a whole number"),
    options(
        "an unknown option", "class_path: os.system", "context_options.class_path: unknown key"
    ),
    options("another option's", "dependency: dot", "context_options.dependency: unknown key"),
    options("activation", "activation: os.system", "give one of identity, exp, relu, sigmoid"),
    options("activation a list", "activation: [relu]", "context_options: unhashable type"),
    options("backend", "backend: os.system", "backend: 'os.system'; give one of auto, dense"),
    options("bound", "score_bound: .inf", "score_bound: inf; give a number from 0 to 1000"),
    row(
        "palette of one",
        "model: {palette: [[1, 2, 3]]}\n",
        "model.palette: 1 colours for 3 classes; give one (r, g, b) for each class",
        code=2,
        begun=True,
    ),
    row("palette 300", "model: {palette: [[1, 2, 300]]}\n", "each a whole number from 0 to 255"),
    row("classes twice", "data: {classes: [a, a, b]}\n", "a class name occurs twice (a)"),
    row(
        "escapes in a class",
        'data: {classes: ["\\e[31mred", b, c]}\n',
        "model.classes: '\\x1b[31mred'; give names of one line",
        code=2,
        begun=True,
    ),
    row("a zero in the root", 'data: {root: "a\\0b"}\n', "a\\x00b: no such folder", OWN_DATA),
    row("the root elsewhere", "data: {root: /etc}\n", "/etc/images: no such folder", OWN_DATA),
    row("a list elsewhere", "data: {train: ../../etc/passwd}\n", "leads out of the data; give the"),
    row("an absolute list", "data: {val: /etc/passwd}\n", "leads out of the data; give the name"),
    row("a giant label", "data: {label_map: {0: 99999999999}}\n", "values are 65535 at most"),
    row(
        "a giant void", "data: {ignore_index: 99999999999}\n", "give a whole number from 0 to 65535"
    ),
    row("nodes", "machine: {nodes: 100000000}\n", "give a whole number from 1 to 65536"),
    row("processes", "machine: {devices: 1000}\n", "--devices: 1000; there are"),
    row("crop", "augment: {crop: [100000, 100000]}\n", "each a whole number from 8 to 32768"),
    row(
        "weights of tiny",
        "model: {backbone: tiny, backbone_weights: /etc/passwd}\n",
        "tiny has no pretrained",
        ("train", "r.yaml", "--data", "data", "--out", "out"),
    ),
    row(
        "weights a device",
        "model: {backbone: mobilenet_v2, backbone_weights: /dev/zero}\n",
        "backbone_weights: /dev/zero is neither a file nor a model; give imagenet, a safetensors "
        "file, a run folder or a built-in model (outdoor)",
        ("train", "r.yaml", "--data", "data", "--out", "out"),
    ),
    *(
        row(f"optimiser {name}", f"training: {{optimizer: {name}}}\n", f"{name!r}; give one of Ada")
        for name in ("__class__", "os.system", "Optimizer", "lr_scheduler", "LBFGS")
    ),
    row(
        "optimiser options", "training: {optimizer_options: {nope: 1}}\n", "nope: unknown key; SGD"
    ),
    row("momentum", "training: {optimizer_options: {momentum: x}}\n", "optimizer_options: '<' not"),
    row("loss options", "training: {loss_options: {gamma: 3}}\n", "cross_entropy has no options"),
    row("loss nan", "training: {loss: focal, loss_options: {gamma: .nan}}\n", "gamma: nan; give a"),
    *(
        row(
            f"logger {name}", f"training: {{loggers: [{name}]}}\n", f"{name!r}; give some of tensor"
        )
        for name in ("os.system", "Logger", "__builtins__", "logger.Logger", "rank_zero_only")
    ),
)


@BAD
def test_refused(world, capsys, case):
    refuse(case, capsys)
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "\ufeffdata: {limit: 3}\n", "data: {limit: 3}"]
)
def test_what_is_right_is_read(tmp_path, text):
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    assert load_recipe(tmp_path / "r.yaml").data.limit == (3 if "limit" in text else None)


def test_an_unreadable_recipe(tmp_path):
    path = tmp_path / "r.yaml"
    path.touch(0o000)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(ValueError, match="Permission denied"):
        load_recipe(path)
