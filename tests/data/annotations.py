"""One small scene as each annotation tool writes it: a (train) as drawn, b (val) without shapes."""

import base64
import io
import json
import zlib

import numpy as np
from PIL import Image

from tests.data.replicas import photograph, png, text

HEIGHT, WIDTH = 6, 8
# a car over rows 1 to 3 and columns 1 to 4, a tree within it and one in the corner
SCENE = [
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 1, 1, 1, 1, 0, 0, 0],
    [0, 1, 2, 2, 1, 0, 0, 0],
    [0, 1, 1, 1, 1, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 2, 2],
]
EMPTY = [[0] * WIDTH] * HEIGHT
CLASSES = ("background", "car", "tree")
CAR = [[1, 1], [5, 1], [5, 4], [1, 4]]  # corners, pixels being squares of side 1
TREE = [[2, 2], [4, 2], [4, 3], [2, 3]]
CORNER = [[6, 5], [8, 5], [8, 6], [6, 6]]


def flat(points):
    return [value for point in points for value in point]


def png_bytes(pixels):
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_json(path, content):
    text(path, json.dumps(content))
    return path


def coco_document(name, annotations=()):
    return {
        "images": [{"id": 42, "file_name": name, "height": HEIGHT, "width": WIDTH}],
        "annotations": [
            {"id": number, "image_id": 42, "iscrowd": 0, **one}
            for number, one in enumerate(annotations, 1)
        ],
        "categories": [{"id": 90, "name": "tree"}, {"id": 3, "name": "car"}],
    }


def coco(root):
    """The tree in the corner in uncompressed run lengths: 6 rows, so column 6 begins at 36."""
    corner = {"size": [HEIGHT, WIDTH], "counts": [41, 1, 5, 1]}
    objects = [
        {"category_id": 90, "segmentation": [flat(TREE)]},
        {"category_id": 3, "segmentation": [flat(CAR)]},
        {"category_id": 90, "segmentation": corner},
    ]
    for split, shapes in (("train", objects), ("val", [])):
        photograph(root / f"{split}2017" / "a.jpg", HEIGHT, WIDTH)
        write_json(
            root / "annotations" / f"instances_{split}2017.json", coco_document("a.jpg", shapes)
        )
    return root


def coco_panoptic(root):
    """Segments 7 (car), 70,000 and 300 (trees); 0 is unlabelled."""
    ids = np.array([0, 7, 70_000])[np.array(SCENE)]
    ids[5] = np.where(ids[5], 300, 0)
    colors = np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=2)
    for split, pixels in (("train", colors), ("val", colors[::-1])):
        photograph(root / f"{split}2017" / "a.jpg", HEIGHT, WIDTH)
        png(root / "annotations" / f"panoptic_{split}2017" / "a.png", pixels)
        document = coco_document("a.jpg")
        segments = [
            {"id": 7, "category_id": 3, "iscrowd": 0},
            {"id": 70_000, "category_id": 90, "iscrowd": 0},
            {"id": 300, "category_id": 90, "iscrowd": 0},
        ]
        document["annotations"] = [
            {"image_id": 42, "file_name": "a.png", "segments_info": segments}
        ]
        write_json(root / "annotations" / f"panoptic_{split}2017.json", document)
    return root


def labelme_shape(label, points, kind="polygon", **more):
    shape = {"label": label, "points": points, "group_id": None, "flags": {}}
    return shape | {"shape_type": kind} | more


def labelme_document(shapes, name="a.jpg", **more):
    document = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": name}
    return document | {"imageData": None, "imageHeight": HEIGHT, "imageWidth": WIDTH} | more


def labelme(root):
    shapes = [
        labelme_shape("car", CAR),
        labelme_shape("tree", [[4, 3], [2, 2]], "rectangle"),
        labelme_shape("tree", CORNER),
    ]
    for split, drawn in (("train", shapes), ("val", [])):
        photograph(root / split / "a.jpg", HEIGHT, WIDTH)
        write_json(root / split / "a.json", labelme_document(drawn))
    return root


def cvat_xml(images, labels=("car", "tree")):
    named = "".join(f"<label><name>{one}</name><type>any</type></label>" for one in labels)
    return f"""<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><project><id>1</id><labels>{named}</labels></project></meta>
{images}
</annotations>
"""


def cvat(root):
    """The tree lies over the car by its z_order, and the other is a mask of 1 row at (6, 5)."""
    points = ";".join(f"{x}.00,{y}.00" for x, y in CAR)
    head = f'width="{WIDTH}" height="{HEIGHT}"'
    images = f"""  <image id="0" name="a.jpg" subset="Train" {head}>
    <box label="tree" xtl="2.0" ytl="2.0" xbr="4.0" ybr="3.0" z_order="1"></box>
    <polygon label="car" points="{points}" z_order="0"></polygon>
    <mask label="tree" rle="0, 2" left="6" top="5" width="2" height="1" z_order="0"></mask>
    <polyline label="car" points="0.0,0.0;8.0,6.0" z_order="5"></polyline>
  </image>
  <image id="1" name="a.jpg" subset="Validation" {head}></image>"""
    for subset in ("Train", "Validation"):
        photograph(root / "images" / subset / "a.jpg", HEIGHT, WIDTH)
    text(root / "annotations.xml", cvat_xml(images))
    return root


def bitmap(mask, left, top):
    """As Supervisely's SDK packs it: a palette PNG whose index 0 is transparent."""
    file = io.BytesIO()
    image = Image.fromarray(np.asarray(mask, np.uint8))
    image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(file, "PNG", transparency=0)
    data = base64.b64encode(zlib.compress(file.getvalue())).decode()
    return {"origin": [left, top], "data": data}


def supervisely_figure(title, kind, exterior=(), interior=(), **more):
    points = {"exterior": list(exterior), "interior": list(interior)}
    return {"classTitle": title, "geometryType": kind, "points": points, "tags": []} | more


def supervisely_document(figures):
    size = {"height": HEIGHT, "width": WIDTH}
    return {"description": "", "tags": [], "size": size, "objects": figures}


def supervisely(root):
    """Corners are pixels here, those of the last row and column of a shape."""
    figures = [
        supervisely_figure("car", "polygon", [[1, 1], [4, 1], [4, 3], [1, 3]]),
        supervisely_figure("tree", "bitmap", bitmap=bitmap([[1, 1]], 2, 2)),
        supervisely_figure("tree", "rectangle", [[6, 5], [7, 5]]),
        supervisely_figure("car", "point", [[0, 0]]),
    ]
    classes = [{"title": name, "shape": "any", "color": "#00FF00"} for name in ("car", "tree")]
    write_json(root / "meta.json", {"classes": classes, "tags": []})
    for split, drawn in (("train", figures), ("val", [])):
        photograph(root / split / "img" / "a.jpg", HEIGHT, WIDTH)
        write_json(root / split / "ann" / "a.jpg.json", supervisely_document(drawn))
    return root


def yolo_line(number, points):
    return f"{number} " + " ".join(f"{x / WIDTH:.6f} {y / HEIGHT:.6f}" for x, y in points)


def yolo(root):
    """The photograph of val has no text file: it shows nothing."""
    text(
        root / "data.yaml",
        "path: ../datasets/scene\ntrain: images/train\nval: images/val\ntest:\n"
        "names:\n  0: car\n  1: tree\n",
    )
    for split in ("train", "val"):
        photograph(root / "images" / split / "a.jpg", HEIGHT, WIDTH)
    lines = [yolo_line(1, TREE), yolo_line(0, CAR), yolo_line(1, CORNER)]
    text(root / "labels" / "train" / "a.txt", "\n".join(lines) + "\n")
    return root
