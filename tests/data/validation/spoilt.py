"""A clean dataset, and every way to spoil it: what an error or a warning then says."""

import numpy as np
import pytest
from PIL import Image

TRAIN, TEST = ("a", "b", "c"), ("x", "y")


def photograph(path, seed, size=(16, 24)):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def label_map(path, values, size=(16, 24)):
    labels = np.resize(np.asarray(values, np.uint8), size)
    Image.fromarray(labels).save(path)


@pytest.fixture
def root(tmp_path):
    """A clean data set: three classes, five pairs, train and test."""
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for seed, name in enumerate(TRAIN + TEST):
        photograph(tmp_path / "images" / f"{name}.jpg", seed)
        label_map(tmp_path / "labels" / f"{name}.png", [0, 1, 2, 255])
    (tmp_path / "classes.txt").write_text("sky\ntree\nroad\n")
    (tmp_path / "train.txt").write_text("\n".join(TRAIN))
    (tmp_path / "test.txt").write_text("\n".join(TEST))
    return tmp_path


def labels_everywhere(root, values):
    for path in (root / "labels").iterdir():
        label_map(path, values)


def exif_rotated(root):
    upright = Image.new("RGB", (24, 16))
    exif = upright.getexif()
    exif[0x0112] = 6
    upright.save(root / "images" / "a.jpg", exif=exif)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-120])


def as_jpeg(path):
    Image.new("L", (24, 16)).save(path, format="JPEG")


ERRORS = {
    "no label map": (
        lambda root: (root / "labels/a.png").unlink(),
        "labels: has no label map for a photograph ('a'); add what is missing",
    ),
    "no photograph": (
        lambda root: (root / "images/x.jpg").unlink(),
        "images: has no photograph that test.txt names ('x')",
    ),
    "two photographs of one name": (
        lambda root: photograph(root / "images/a.png", 9),
        "images/a.png: a.jpg has the same name; keep one of them",
    ),
    "truncated photograph": (
        lambda root: truncate(root / "images/a.jpg"),
        "images/a.jpg: cannot be read (",
    ),
    "truncated label map": (
        lambda root: (root / "labels/a.png").write_bytes(b"\x89PNG\r\n\x1a\n"),
        "labels/a.png: not an image",
    ),
    "size": (
        lambda root: label_map(root / "labels/b.png", [0], (8, 24)),
        "labels/b.png: has another size than its photograph (8 x 24, not 16 x 24)",
    ),
    "turned, but not by EXIF": (
        lambda root: label_map(root / "labels/b.png", [0], (24, 16)),
        "labels/b.png: has another size than its photograph (24 x 16, not 16 x 24)",
    ),
    "EXIF": (
        exif_rotated,
        "labels/a.png: has the orientation of its photograph before EXIF rotation "
        "(16 x 24, not 24 x 16)",
    ),
    "RGB": (
        lambda root: Image.new("RGB", (24, 16)).save(root / "labels/a.png"),
        "labels/a.png: a RGB label map; give one channel",
    ),
    "JPEG": (lambda root: as_jpeg(root / "labels/a.png"), "labels/a.png: a JPEG label map; "),
    "out of range": (
        lambda root: label_map(root / "labels/y.png", [0, 9]),
        "labels/y.png: holds labels that are no class, 0 to 2 (9); rename them",
    ),
    "zero is unlabelled": (
        lambda root: label_map(root / "labels/y.png", [0, 3]),
        "labels/y.png: holds labels that are no class, 0 to 2 (3); where 0 is unlabelled, give "
        "--data.reduce_zero_label true",
    ),
    "binary": (
        lambda root: labels_everywhere(root, [0, 255]),
        "labels/a.png: holds only 0 and 255, like all label maps here: probably binary masks; give "
        "--data.label_map '{255: 1}'",
    ),
    "counted from one": (
        lambda root: labels_everywhere(root, [1, 2, 3, 255]),
        "labels/a.png: labels run from 1 to 3, but class indices start at 0; give "
        "--data.reduce_zero_label true",
    ),
    "in two lists": (
        lambda root: (root / "test.txt").write_text("x\ny\nb"),
        "images/b.jpg: is in train and in test",
    ),
    "twice in one list": (
        lambda root: (root / "test.txt").write_text("x\ny\nx.jpg"),
        "images/x.jpg: is listed more than once in test",
    ),
    "the same photograph": (
        lambda root: (
            Image.open(root / "images/c.jpg").save(root / "images/x.png")
            or (root / "images/x.jpg").unlink()
        ),
        "images/x.png: is in test, and a copy of it in train (c.jpg)",
    ),
    "small": (
        lambda root: (
            photograph(root / "images/a.jpg", 9, (7, 40)),
            label_map(root / "labels/a.png", [0], (7, 40)),
        ),
        "images/a.jpg: is smaller than 8 x 8 pixels (7 x 40)",
    ),
    "empty split": (
        lambda root: (root / "test.txt").write_text("\n"),
        "test.txt: names no photograph",
    ),
    "nothing labelled": (
        lambda root: labels_everywhere(root, [255]),
        "no pixel of the training images is labelled",
    ),
    "a class named twice": (
        lambda root: (root / "classes.txt").write_text("sky\nsky\nroad"),
        "classes: a class name occurs twice (sky)",
    ),
}

WARNINGS = {
    "label map alone": (
        lambda root: label_map(root / "labels/lonely.png", [0]),
        "labels/lonely.png: has no photograph",
    ),
    "class never used": (
        lambda root: (root / "classes.txt").write_text("sky\ntree\nroad\nmoon"),
        "class moon: never occurs; ",
    ),
    "class never trained": (
        lambda root: [label_map(root / f"labels/{name}.png", [0, 1]) for name in TRAIN],
        "class road: never occurs in train",
    ),
    "all unlabelled": (
        lambda root: label_map(root / "labels/a.png", [255]),
        "labels/a.png: is all unlabelled",
    ),
    "no names": (
        lambda root: (root / "classes.txt").unlink(),
        "class names are missing, so they are class 0, class 1, ...; write classes.txt",
    ),
    "counted from one, perhaps": (
        lambda root: (root / "classes.txt").unlink() or labels_everywhere(root, [1, 2]),
        "labels/a.png: labels run from 1 to 2, but class indices start at 0",
    ),
    "no list": (
        lambda root: (root / "test.txt").write_text("x"),
        "images/y.jpg: is in no list",
    ),
    "twin in one split": (
        lambda root: (root / "images/b.jpg").write_bytes((root / "images/a.jpg").read_bytes()),
        "images/b.jpg: is a copy of another photograph of train (a.jpg)",
    ),
}


def lines(findings):
    return [str(finding) for finding in findings]
