"""Models and training states by strangers: only what they are is read, and it runs nothing."""

import json
import os
import pickle
import shutil
import struct
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from scaseg.errors import UserError
from scaseg.models.build import create_model, load_model
from scaseg.training.checkpoint_io import PREVIOUS, read_state, write_state
from tests.faults.catalogue import LIGHT, Case, cases, refuse

PREDICT = ("predict", "photo.png", "--model", "model", "--device", "cpu", "--out", "out")
EVALUATE = ("evaluate", "--model", "model", "--data", "data", "--device", "cpu", "--quiet")
RESUME = ("train", "--resume", "--out", "run", "--data", "data")
CONFIG, WEIGHTS = Path("model/config.json"), Path("model/model.safetensors")
STATE = Path("run/checkpoints/last.safetensors")


class Payload:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def config(name, said, arguments=PREDICT, **changes):
    def spoil():
        CONFIG.write_text(json.dumps(json.loads(CONFIG.read_text()) | changes))

    return (name, arguments, said, spoil)


def content(path, name, text, said, arguments=PREDICT):
    return (name, arguments, said, lambda: path.write_bytes(text))


def weights(name, change, said):
    def spoil():
        save_file(change(load_file(WEIGHTS)), WEIGHTS)

    return (name, PREDICT, said, spoil)


def header(name, said, head, body=b"abcd"):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return content(WEIGHTS, name, struct.pack("<Q", len(text)) + text + body, said)


def in_place(path, put):
    def spoil():
        path.unlink()
        put(path)

    return spoil


def edited(edit):
    def spoil():
        WEIGHTS.write_bytes(edit(WEIGHTS.read_bytes()))

    return spoil


def state(name, change, said="holds no training state, and there is no whole previous"):
    """A state with a right checksum, and nothing before it."""

    def spoil():
        found = read_state(STATE)
        for path in STATE.parent.glob("*.safetensors"):
            path.unlink()
        write_state({**found, **change}, STATE)

    return (name, RESUME, said, spoil, 2, True)


def raw_state(name, text, said="and there is no whole previous.safetensors; start again"):
    def spoil():
        STATE.with_name(PREVIOUS).unlink(missing_ok=True)
        STATE.write_bytes(text)

    return (name, RESUME, said, spoil, 2, True)


def tensor(shape, dtype="F32", offsets=(0, 4)):
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def twice():
    text = WEIGHTS.read_bytes()
    size = int.from_bytes(text[:8], "little")
    header = json.loads(text[8 : 8 + size])
    again = json.dumps(header["head.fc6.bias"])
    head = f'{json.dumps(header)[:-1]}, "head.fc6.bias": {again}}}'.encode()
    WEIGHTS.write_bytes(struct.pack("<Q", len(head)) + head + text[8 + size :])


NAN, INF = float("nan"), float("inf")
BAD_CONFIGS = cases(
    content(CONFIG, "a list", b"[1, 2]", "holds a list; a model config is an object"),
    content(CONFIG, "text", b'"x"', "holds a str; a model config is an object"),
    content(CONFIG, "empty", b"", "not JSON (Expecting value"),
    content(CONFIG, "noise", bytes(range(256)), "not JSON ('utf-8' codec can't decode"),
    content(CONFIG, "deep lists", b"[" * 200_000, "not JSON (maximum recursion depth"),
    content(CONFIG, "deep objects", b'{"a":' * 100_000, "not JSON (maximum recursion depth"),
    content(CONFIG, "digits", b'{"classes":[' + b"9" * 6000 + b"]}", "not JSON (Exceeds the limit"),
    ("200 MB", PREDICT, "200000000 bytes, where", lambda: os.truncate(CONFIG, 2 * 10**8)),
    (
        "a device",
        PREDICT,
        "has no config.json",
        in_place(CONFIG, lambda p: p.symlink_to("/dev/zero")),
    ),
    config("an unknown key", "class_path: unknown key; a model config has", class_path="os.system"),
    config("escapes in a key", "\\x1b[31m: unknown key", **{"\x1b[31m": 1}),
    config("backbone a path", "backbone: '../../x'; give one of vgg16", backbone="../../x"),
    config("backbone a list", "backbone: ['tiny']; give text", backbone=["tiny"]),
    config(
        "backbone with escapes",
        "backbone: '\\x1b[31mred\\n'; give one of",
        backbone="\x1b[31mred\n",
    ),
    config("another backbone", "which the model of config.json has not", backbone="vgg16"),
    config("context", "context: 'os.system'; give one of none", context="os.system"),
    config("head", "head: {'a': 1}; give text", head={"a": 1}),
    config("classes a number", "classes: 3; give a list, each text", classes=3),
    config("classes text", "classes: 'abc'; give a list, each text", classes="abc"),
    config("classes null", "classes: None; give a list", classes=None),
    config("a class a list", "give a list, each text", classes=[["a"], "b", "c"]),
    config("a million classes", "classes: 1000000; label", classes=list(map(str, range(10**6)))),
    config(
        "one twice of many", "classes: '5' is named twice", classes=[*map(str, range(60_000)), "5"]
    ),
    config("too many classes", "wants (60000,)", classes=list(map(str, range(60_000)))),
    config("escapes in a class", "classes: '\\x1b[31m'; give names", classes=["\x1b[31m", "b"]),
    config("a class of two lines", "classes: 'a\\nb'; give names of one", classes=["a\nb", "c"]),
    config("half a character", "classes: '\\ud800'; give names", classes=["\ud800", "b", "c"]),
    config("a class without name", "classes: ''; give names", classes=["", "b", "c"]),
    config("a class of a megabyte", "at most 200 characters", classes=["a" * 10**6, "b", "c"]),
    config("channels 1e9", "in_channels: 1000000000; give 1 to", in_channels=10**9),
    config("channels 0", "in_channels: 0; give 1 to", in_channels=0, mean=[], std=[]),
    config("channels text", "in_channels: '3'; give a whole number", in_channels="3"),
    config("mean nan", "mean: [nan, nan, nan]; give a list, each a number", mean=[NAN] * 3),
    config("mean 1e308", "mean: (1e+308, 0.0, 0.0); give numbers from", mean=[1e308, 0, 0]),
    config("std 0", "std: (0.0, 0.0, 0.0); give numbers from 1e-12 to 1e+12", std=[0, 0, 0]),
    config("std 1e-300", "std: (1e-300, 1.0, 1.0); give numbers", std=[1e-300, 1, 1]),
    content(CONFIG, "a key twice", b'{"head": "x", "head": "y"}', "not JSON (head is given twice)"),
    config("palette 3000", "palette: (1, 2, 3000); give (r, g, b)", palette=[[1, 2, 3000]] * 3),
    config("palette text", "palette: 'x'; give a list", palette="x"),
    config("fit 1e9", "fit: (1000000000, 1000000000); give", fit=[10**9, 10**9]),
    config(
        "hidden 1e12", "hidden: 1000000000000; give a whole", context_options={"hidden": 10**12}
    ),
    config("too large", "would take", context_options={"hidden": 2**14, "layers": 1000}),
    config("layers 1e9", "layers: 1000000000; give a whole", context_options={"layers": 10**9}),
    config("an unknown option", "class_path: unknown key", context_options={"class_path": "x"}),
    config("options a list", "context_options: [1]; give a mapping", context_options=[1]),
    config("a record a list", "training: [1]; give a mapping", training=[1]),
    config(
        "a record of other data",
        "--model: config.json: training.recipe.data.name: 'os.system'; give one of folder",
        EVALUATE,
        training={"recipe": {"data": {"name": "os.system"}}},
    ),
)

BAD_WEIGHTS = cases(
    ("none", PREDICT, "has no model.safetensors", lambda: WEIGHTS.unlink()),
    ("a folder", PREDICT, "has no model.safetensors", in_place(WEIGHTS, Path.mkdir)),
    ("a pipe", PREDICT, "has no model.safetensors", in_place(WEIGHTS, os.mkfifo)),
    (
        "a device",
        PREDICT,
        "has no model.safetensors",
        in_place(WEIGHTS, lambda path: path.symlink_to("/dev/zero")),
    ),
    content(WEIGHTS, "empty", b"", "not a safetensors file"),
    content(WEIGHTS, "a pickle", pickle.dumps(Payload()), "not a safetensors file (a header of"),
    ("torch's pickle", PREDICT, "not a safetensors", lambda: torch.save(Payload(), WEIGHTS)),
    content(WEIGHTS, "a header of 2^60", struct.pack("<Q", 2**60) + b"{}", "a header of 115292"),
    header("a header of 90 MB", "a header of 90000000 bytes", b" " * 9 * 10**7),
    header("a deep header", "recursion limit exceeded", b'{"a":' * 50_000),
    header("shapes beyond counting", "overflow computing buffer size", tensor([2**62, 2**62])),
    header("a negative shape", "integer `-1`, expected usize", tensor([-1])),
    header("offsets backwards", "invalid offset for tensor", tensor([1], offsets=(4, 0))),
    header("an unknown dtype", "unknown variant `os.system`", tensor([1], "os.system")),
    header(
        "claims of terabytes", "file not fully covered", tensor([10**12], offsets=(0, 4 * 10**12))
    ),
    ("a key twice", PREDICT, "not a safetensors file (head.fc6.bias is given twice)", twice),
    header("four bits", "has a, which the model of config.json has not", tensor([8], "F4")),
    ("cut off", PREDICT, "file not fully covered", edited(lambda text: text[:-9])),
    ("with a tail", PREDICT, "file not fully covered", edited(lambda text: text + b"tail")),
    ("one bit", PREDICT, "is damaged (its checksum", edited(lambda t: t[:-1] + bytes([t[-1] ^ 1]))),
    (
        "another model's",
        PREDICT,
        "has no context.context.weight; it belongs to another config.json",
        lambda: shutil.copy("other/model.safetensors", WEIGHTS),
    ),
    weights(
        "other shapes",
        lambda own: {
            k: v.repeat(2, *[1] * (v.dim() - 1)) if v.dim() else v for k, v in own.items()
        },
        "has shape (32, 3, 3, 3); the model of config.json wants (16, 3, 3, 3)",
    ),
    weights("one more", lambda own: {**own, "x": torch.ones(3)}, "has x, which the model of"),
    weights("nan", lambda own: {**own, "head.fc6.bias": own["head.fc6.bias"] * NAN}, "not finite"),
    weights("inf", lambda own: {**own, "head.fc6.bias": own["head.fc6.bias"] + INF}, "not finite"),
    weights(
        "beyond 32 bits", lambda own: {k: v.double() * 1e300 for k, v in own.items()}, "finite"
    ),
    weights("whole numbers", lambda own: {k: v.int() for k, v in own.items()}, "holds torch.int32"),
    weights("complex", lambda own: {k: v + 0j for k, v in own.items()}, "holds torch.complex64"),
)

BAD_STATES = cases(
    raw_state("a pickle", pickle.dumps(Payload())),
    raw_state("empty", b""),
    raw_state("noise", bytes(range(256)) * 99),
    state("loops a list", {"loops": [1]}),
    state("no loops", {"loops": {}}),
    state("epoch text", {"epoch": "x"}),
    state("optimiser text", {"optimizer_states": "x"}),
    state("schedule text", {"lr_schedulers": ["os.system"]}),
    state("no weights", {"state_dict": {}}, "is the state of another network; start with"),
    (
        "another network",
        RESUME,
        "is the state of another network; start with --overwrite",
        lambda: replace("run/recipe.yaml", "hidden: 8", "hidden: 9"),
        2,
        True,
    ),
    (
        "other classes",
        RESUME,
        "is the state of another network; start with --overwrite",
        lambda: Path("data/classes.txt").write_text("a\nb\nc\nd\n"),
        2,
        True,
    ),
    (
        "a recipe that is none",
        RESUME,
        "run/recipe.yaml: line",
        lambda: replace("run/recipe.yaml", "epochs: 1", "epochs: ["),
    ),
    (
        "a recipe that runs",
        RESUME,
        "could not determine a constructor",
        lambda: Path("run/recipe.yaml").write_text("!!python/object/apply:os.system [touch pwned]"),
    ),
    content(Path("run/metrics.csv"), "a table", b"a,b\n1\n", "not a table of ours (a row", RESUME),
    content(Path("run/metrics.csv"), "noise for a table", b"\xff\0", "not a table of ours", RESUME),
    content(
        Path("run/metrics.csv"), "columns", b"epoch\n1\n", "not a table of ours ('loss')", RESUME
    ),
    (
        "a finished run without its model",
        RESUME,
        "run/model/config.json: not JSON",
        lambda: finished("["),
        2,
        True,
    ),
)


def replace(path, old, new):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def finished(text):
    shutil.copytree("model", "run/model")
    Path("run/model/config.json").write_text(text)


@BAD_CONFIGS
def test_config(world, capsys, case):
    refuse(case, capsys)


@BAD_WEIGHTS
def test_weights(world, capsys, case):
    refuse(case, capsys)
    assert not Path("pwned").exists()


@BAD_STATES
def test_state(world, capsys, case):
    refuse(case, capsys)
    assert not Path("pwned").exists()


def test_backbone_weights(world, capsys):
    """A pickle in place of ImageNet's weights; the data have been looked at by then."""
    Path("w.safetensors").write_bytes(pickle.dumps(Payload()))
    light = [word for word in LIGHT if word != "tiny"]
    light.insert(1, "mobilenet_v2")
    arguments = ("train", "--data", "data", "--out", "out", *light, "--context", "sca")
    (case,) = cases(
        (
            "a pickle",
            (*arguments, "--backbone-weights", "w.safetensors"),
            "backbone_weights: w.safetensors: not a safetensors file",
            None,
            2,
            True,
        )
    ).args[1]
    refuse(case, capsys)
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("features.0.0.weight", lambda value: value * NAN, "has values that are not finite"),
        ("features.0.1.running_var", lambda value: value - 2, "has negative variances"),
    ],
)
def test_a_backbone_that_computes_nothing(tmp_path, name, change, said):
    """Refused when it is loaded, not at the first loss."""
    model = create_model("mobilenet_v2", "none", "pointwise", classes=2)
    state = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    assert name in state
    save_file({**state, name: change(state[name])}, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=f"{name} {said}; give other weights"):
        create_model(
            *("mobilenet_v2", "none", "pointwise"),
            classes=2,
            backbone_weights=tmp_path / "w.safetensors",
        )


def spoil_model(name):
    """Weights that are finite, and the output is not."""
    weights("", lambda own: {**own, name: torch.full_like(own[name], 3e38)}, "")[3]()


EXPLAIN = ("explain", "photo.png", "--model", "model", "--out", "why.png")
OVERFLOW = [
    ("predict", (*PREDICT, "--quiet"), 2),
    ("windows", (*PREDICT, "--window", "16", "--quiet"), 2),
    ("with scores", (*PREDICT, "--scores", "--quiet"), 2),
    ("explain", (*EXPLAIN, "--classes"), 2),
    ("evaluate", (*EVALUATE, "--split", "all", "--workers", "0"), 1),
]


@pytest.mark.parametrize(("name", "arguments", "code"), OVERFLOW, ids=[row[0] for row in OVERFLOW])
def test_a_prediction_that_is_not_finite(world, capsys, name, arguments, code):
    said = "model: its scores of this image are not finite"
    refuse(Case(name, arguments, said, lambda: spoil_model("head.score.weight"), code), capsys)


def test_features_that_are_not_finite(world, capsys):
    said = "model: its features of this image are not finite"
    spoil = partial(spoil_model, "backbone.features.4.0.weight")
    refuse(Case("features", (*EXPLAIN, "--point", "3,3"), said, spoil), capsys)


def test_what_is_only_unusual_is_read(world):
    """Half precision and no checksum, as other tools write it."""
    own = load_file(WEIGHTS)
    save_file({k: v.half() if v.is_floating_point() else v for k, v in own.items()}, WEIGHTS)
    model = load_model("model")
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("name", ["class_pixels.json", "environment.json"])
def test_what_can_be_made_again_is(world, name):
    """Files of a run that are only a help need not be ours: it goes on without them."""
    from scaseg.cli import main

    (Path("run") / name).write_text("[1]")
    main([*RESUME, "--quiet"])
    assert Path("run/model/config.json").is_file()
