"""Photographs, label maps, lists and classes that are not what they should be; full disks.

What single decoders make of damaged files: tests/data/test_hostile_images.py and test_fuzz.py.
"""

import errno
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.faults.catalogue import LIGHT, TRAIN, Case, cases, refuse

EVALUATE = ("evaluate", "--model", "model", "--data", "data", "--device", "cpu", "--quiet")
PREDICT = ("predict", "photo.png", "--model", "model", "--device", "cpu", "--out", "out")
EXPLAIN = ("explain", "photo.png", "--model", "model", "--device", "cpu", "--point", "1,1")
TWO = ("explain", "--compare", "other", "model", "--data", "data", "--device", "cpu", "--quiet")
COMPARE = ("compare", "--data", "data", "--out", "out", *LIGHT, "--contexts", "none", "sca")
IMAGE, LABELS = Path("data/images/scene05.png"), Path("data/labels/scene05.png")  # of train
TESTED, TEST_LABELS = Path("data/images/scene02.png"), Path("data/labels/scene02.png")


def text(path, content):
    return lambda: Path(path).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def listed(name, content, said):
    return (f"train.txt {name}", TRAIN, said, text("data/train.txt", content))


def classes(name, content, said, *more):
    return (f"classes.txt {name}", TRAIN, said, text("data/classes.txt", content), *more)


def instead(path, put):
    def spoil():
        path.unlink()
        put(path)

    return spoil


def cut(path, size):
    return lambda: os.truncate(path, size)


def flipped(path, place):
    def spoil():
        content = bytearray(path.read_bytes())
        content[place] ^= 255
        path.write_bytes(content)

    return spoil


def saved(path, image, **options):
    return lambda: image.save(path, **options)


def to_jpeg():
    Image.open(LABELS).save(LABELS.with_suffix(".jpg"))
    LABELS.unlink()


def record(content):
    def spoil():
        os.mkdir("out")
        Path("out/.scaseg.json").write_text(content)
        shutil.copy("label.png", "out/x.png")

    return spoil


ESCAPES = ("a\x1b[31m\nb\nc\n", "classes: 'a\\x1b[31m'; give names of one line")


def exported(name, file, content, said):
    """An export of an annotation tool, of one bad file."""
    arguments = ("data", "prepare", name, "export", "out")

    def spoil():
        os.mkdir("export")
        Path("export", file).write_text(content)

    return (f"prepare: {name} {said}", arguments, said, spoil)


BOMB = '<!DOCTYPE a [<!ENTITY b "cccc"><!ENTITY d "&b;&b;&b;&b;">]><annotations>&d;</annotations>'
BAD = cases(
    listed(
        "leads out",
        "../../etc/passwd\n",
        "that train.txt names ('../../etc/passwd')",
    ),
    listed("is absolute", "/etc/passwd\n", "that train.txt names ('/etc/passwd')"),
    listed("has a zero", "a\0b\n", "photograph that train.txt names ('a\\x00b')"),
    listed("has escapes", "\x1b[31mred\n", "photograph that train.txt names ('\\x1b[31mred')"),
    listed("has a line of 5 MB", "a" * 5_000_000, "has no photograph that train.txt names ('aaaa"),
    listed("is noise", bytes(range(256)), "train.txt: cannot be read ('utf-8' codec"),
    listed("is empty", "", "train.txt: names no photograph; give one name a line"),
    listed("shares with val", "scene00\nscene04\n", "'scene00' is in train and in validation"),
    ("train.txt a pipe", TRAIN, "no such file", instead(Path("data/train.txt"), os.mkfifo)),
    classes("is empty", "", "classes.txt: names no class; give one name a line"),
    classes("names too few", "a\n", "holds labels that are no class, 0 to 0 (1)"),
    classes("is noise", bytes(range(256)), "classes.txt: cannot be read ('utf-8' codec"),
    classes("has escapes", *ESCAPES, 2, True),
    classes("has a name of 5 kB", "a" * 5000 + "\nb\nc\n", "at most 200 characters", 2, True),
    classes("names 70,000", "\n".join(map(str, range(70_000))), "room for 65535", 2, True),
    ("labels as JPEG", TRAIN, "a JPEG label map; its values are blurred", to_jpeg),
    ("labels a pipe", TRAIN, "is a named pipe; give a file", instead(LABELS, os.mkfifo)),
    (
        "labels a device",
        TRAIN,
        "is a device; give a file",
        instead(LABELS, lambda path: path.symlink_to("/dev/zero")),
    ),
    (
        "labels a link to themselves",
        TRAIN,
        "Too many levels of symbolic links",
        instead(LABELS, lambda path: path.symlink_to(path.name)),
    ),
    ("a photograph cut off", TRAIN, "cannot be read (image file is truncated)", cut(IMAGE, 600)),
    ("a photograph of 0 bytes", TRAIN, "not an image (it is empty); fetch it", cut(IMAGE, 0)),
    ("a wrong checksum", TRAIN, "chunk is damaged, the checksum is wrong", flipped(IMAGE, 60)),
    ("a web page", TRAIN, "it is a web page (HTML)", text(IMAGE, "<html>404</html>")),
    ("a drawing", TRAIN, "it is SVG, a drawing", text(IMAGE, "<svg/>")),
    ("PostScript", TRAIN, "it is PostScript (EPS)", text(IMAGE, "%!PS-Adobe-3.0 EPSF-3.0\n")),
    ("a GIF", TRAIN, "it is a GIF", saved(IMAGE, Image.new("L", (40, 32)), format="GIF")),
    ("a bomb", TRAIN, "20000 x 20000 pixels; at most", saved(IMAGE, Image.new("1", (20_000,) * 2))),
    ("a photograph a folder", TRAIN, "is a folder; give a file", instead(IMAGE, Path.mkdir)),
    ("no photographs", TRAIN, "data/images: no such folder", lambda: shutil.rmtree("data/images")),
    ("evaluate: cut off", EVALUATE, "scene02.png: cannot be read", cut(TESTED, 600)),
    ("evaluate: no labels", EVALUATE, "no label map for a photograph", TEST_LABELS.unlink),
    ("evaluate: a new out", (*EVALUATE, "--out", "o/p"), "it is empty", cut(TESTED, 0)),
    (
        "evaluate: other classes",
        EVALUATE,
        "class 0 is 'leaf', the model's is 'brick'",
        text("data/classes.txt", "leaf\nbrick\nwater\n"),
    ),
    (
        "compare: a training image",
        COMPARE,
        "scene05.png: not an image (it is empty)",
        cut(IMAGE, 0),
    ),
    ("compare: a test image", COMPARE, "scene02.png: not an image (it is empty)", cut(TESTED, 0)),
    ("explain two: cut off", (*TWO, "--out", "a.png"), "scene02.png: cannot", cut(TESTED, 600)),
    ("predict: cut off", PREDICT, "photo.png: cannot be read", cut("photo.png", 600)),
    ("predict: a GIF by name", PREDICT, "it is a GIF", text("photo.png", "GIF89a")),
    ("predict: a bad record", PREDICT, "not a record of predict; remove it", record("[")),
    (
        "predict: another's record",
        PREDICT,
        "holds results of another model",
        record('{"model": 1}'),
    ),
    ("explain: cut off", (*EXPLAIN, "--out", "a.png"), "photo.png: cannot", cut("photo.png", 600)),
    (
        "compare: other settings",
        COMPARE,
        "out holds a comparison with other settings (augment.brightness is 0.0, ",
        lambda: (os.mkdir("out"), Path("out/recipe.yaml").write_text("training: {epochs: 7}")),
    ),
    (
        "prepare: another's marker",
        ("data", "prepare", "folder", "data", "out"),
        "out/.scaseg-prepare.json: cannot be read",
        lambda: (os.mkdir("out"), Path("out/.scaseg-prepare.json").write_text("[")),
    ),
    exported("cvat", "annotations.xml", BOMB, "annotations.xml: line 1: a document type"),
    exported("coco", "a.json", '{"images": [], "annotations": ' + "[" * 99_999, "nested too deep"),
    exported("coco", "a.json", '{"images": [], "annotations": [{', "not valid JSON (line 1, colu"),
    exported("supervisely", "meta.json", '{"classes": 3}', "meta.json: classes: 3; give a list"),
    exported("yolo", "data.yaml", "train: &a [*a]\n", "data.yaml: line 1: an alias (*a); write"),
    exported("hf", "train.parquet", "PAR1" * 9, "train.parquet: cannot be read ("),
)


@BAD
def test_refused(world, capsys, case):
    refuse(case, capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*EXPLAIN, "--out", "why.png"), "No space left on device"),
        ((*EXPLAIN, "--out", "why.npz"), "No space left on device"),
        (PREDICT, "--out: out: cannot be written (No space left on device)"),
    ],
)
def test_a_full_disk(world, capsys, monkeypatch, arguments, said):
    """No file takes its place: nothing is there that was not before, and the line says why."""

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(os, "link", full)
    code = 2 if "predict" in arguments else 1
    refuse(Case("full", arguments, said, None, code), capsys)


def test_a_folder_that_may_not_be_written(world, capsys):
    os.mkdir("locked", 0o500)
    if os.access("locked", os.W_OK):
        pytest.skip("this user may write everywhere")
    for arguments in ((*PREDICT, "--out", "locked/out"), (*EXPLAIN, "--out", "locked/why.png")):
        refuse(Case("locked", arguments, "cannot be written (Permission denied)"), capsys)
