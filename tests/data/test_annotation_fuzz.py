"""Whatever an annotation file holds, it is drawn or refused by a UserError, never by another."""

import copy
import json
import random

import pytest

from scaseg.data.datasets.coco import CocoInstances, CocoPanoptic
from scaseg.data.datasets.cvat import Cvat
from scaseg.data.datasets.labelme import LabelMe
from scaseg.data.datasets.supervisely import Supervisely
from scaseg.data.datasets.yolo import Yolo
from scaseg.errors import UserError
from tests.data import annotations

ODD = [None, True, -1, 0, 1e308, float("nan"), float("inf"), 2**70, 0.5, "", "x", "../../x", "\0"]
ODD += [[], {}, [[]], [[1]], {"a": 1}, [1, 2], [None], [[None, None]], "é", "a" * 300]
SIGNS = b'0123456789-.,;"<>e nai\xff'
WORDS = [b"999999999", b"-1", b"nan", b"1e400", b"<a>", b"inf"]


def places(value, place=()):
    """All places of a document, as the keys that lead there."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, one in value.items() if isinstance(value, dict) else ():
        yield (*place, key)
        yield from places(one, (*place, key))


def change_value(text, chance):
    document = json.loads(text)
    *way, last = chance.choice(list(places(document)))
    inside = document
    for key in way:
        inside = inside[key]
    if isinstance(inside, dict) and chance.random() < 0.2:
        del inside[last]
    else:
        inside[last] = copy.deepcopy(chance.choice(ODD))
    return json.dumps(document).encode()


def change_bytes(text, chance):
    data = bytearray(text.encode())
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        data[at : at + (0, 1, 7)[kind]] = (
            chance.choice(WORDS),
            bytes([chance.choice(SIGNS)]),
            b"",
        )[kind]
    return bytes(data)


@pytest.mark.parametrize(
    ("dataset", "name", "file", "change"),
    [
        (CocoInstances, "coco", "annotations/instances_train2017.json", change_value),
        (CocoPanoptic, "coco_panoptic", "annotations/panoptic_train2017.json", change_value),
        (LabelMe, "labelme", "train/a.json", change_value),
        (Supervisely, "supervisely", "train/ann/a.jpg.json", change_value),
        (Supervisely, "supervisely", "meta.json", change_value),
        (Cvat, "cvat", "annotations.xml", change_bytes),
        (Yolo, "yolo", "labels/train/a.txt", change_bytes),
        (Yolo, "yolo", "data.yaml", change_bytes),
    ],
)
def test_damaged_annotations(dataset, name, file, change, tmp_path):
    path = getattr(annotations, name)(tmp_path) / file
    whole, chance, refused = path.read_text(), random.Random(0), 0
    for _ in range(60):
        path.write_bytes(change(whole, chance))
        try:
            dataset.recognize(tmp_path)
            for index, _ in enumerate((data := dataset(tmp_path, strict=False)).names):
                data[index]
        except UserError:
            refused += 1
    assert 5 < refused < 60
