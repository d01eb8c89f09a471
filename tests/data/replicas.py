"""Small data sets in exactly the forms in which the official ones lie on disks."""

from zlib import crc32

import numpy as np
from PIL import Image
from scipy.io import savemat

SCENES = "spatial_envelope_256x256_static_8outdoorcategories"

# PASCAL Context's 59_labels.txt, in its own order: VOC's 20 first, with its own three spellings
OFFICIAL_59 = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor", "bag", "bed", "bench", "book", "building", "cabinet", "ceiling", "clothes",
    "computer", "cup", "door", "fence", "floor", "flower", "food", "grass", "ground", "keyboard",
    "light", "mountain", "mouse", "curtain", "platform", "sign", "plate", "road", "rock",
    "shelves", "sidewalk", "sky", "snow", "bedcloth", "track", "tree", "truck", "wall", "water",
    "window", "wood",
]  # fmt: skip

# and the ids of these in labels.txt, as the Detail API lists them for evaluation
OFFICIAL_59_IDS = [
    2, 23, 25, 31, 34, 45, 59, 65, 72, 98, 397, 113, 207, 258, 284, 308, 347, 368, 416, 427, 9, 18,
    22, 33, 44, 46, 68, 80, 85, 104, 115, 144, 158, 159, 162, 187, 189, 220, 232, 259, 260, 105,
    296, 355, 295, 324, 326, 349, 354, 360, 366, 19, 415, 420, 424, 440, 445, 454, 458,
]  # fmt: skip

# One label map of PASCAL Context, by name; None: unlabelled, or one of the 400 rarer classes
CONTEXT = [["aeroplane", "bag", None], ["table", "bedclothes", "wood"]]
CONTEXT_IDS = {None: 1, "aeroplane": 2, "bag": 9, "table": 397, "bedclothes": 19, "wood": 458}
CONTEXT_CLASSES = [[0, 1, 255], [49, 3, 58]]  # what must come of it


def photograph(path, height=2, width=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(crc32(path.name.encode())).integers(
        0, 256, (height, width, 3), np.uint8
    )
    Image.fromarray(noise).save(path)


def enlarge(root, times=8):
    """Make all images below a folder larger: `data check` refuses those of a few pixels."""
    for path in (*root.rglob("*.jpg"), *root.rglob("*.png")):
        with Image.open(path) as image:
            size = image.width * times, image.height * times
            image.resize(size, Image.Resampling.NEAREST).save(path)


def mat(path, **variables):
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, variables, do_compression=True)


def png(path, labels, dtype=np.uint8):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(labels, dtype)).save(path)


def text(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())


def cell(names):
    """A column of strings, as MATLAB's cell arrays come."""
    return np.array(list(names), object).reshape(-1, 1)


def sift_flow(root, names=True):
    """Three photographs that are labelled, and the two that are not."""
    from scaseg.data.datasets.sift_flow import SEMANTIC

    semantic = {"coast_bea1": [[0, 1, 33], [28, 28, 2]], "forest_for3": [[1, 1, 1], [2, 2, 2]]}
    semantic |= {"street_par6": [[33] * 3] * 2}
    semantic |= {"highway_bost181": [[0] * 3] * 2, "street_urb506": [[0] * 3] * 2}
    for name, labels in semantic.items():
        photograph(root / "Images" / SCENES / f"{name}.jpg")
        named = {"names": cell(SEMANTIC)} if names else {}
        mat(root / "SemanticLabels" / SCENES / f"{name}.mat", S=np.uint8(labels), **named)
        geo = np.where(np.array(labels) == 0, -1, 1 + np.array(labels) % 3).astype(np.int16)
        named = {"names": cell(["sky", "horizontal", "vertical"])} if names else {}
        mat(root / "GeoLabels" / SCENES / f"{name}.mat", S=geo, **named)
    lines = [f"{SCENES}\\{name}.jpg" for name in ("street_par6", "highway_bost181")]
    text(root / "TestSet1.txt", "\r\n".join(lines) + "\r\n")
    return root


def pascal_context(root, form):
    """Photographs a (train) and b (val) with CONTEXT as labels, b mirrored."""
    voc = root / "VOCdevkit" / "VOC2010"
    spelt = {"diningtable": "table", "bedcloth": "bedclothes", "clothes": "cloth"}
    renamed = [spelt.get(name, name) for name in OFFICIAL_59]
    by_official = {name: value for value, name in enumerate(renamed, 1)} | {None: 0}
    from_one = {name: value for value, name in enumerate(sorted(renamed), 1)} | {None: 0}
    from_zero = {n: (i - 1) % 256 for n, i in from_one.items()}
    values, folder, lists = {
        "mat": (CONTEXT_IDS, root / "trainval", "Main/{}.txt"),
        "mmseg": (from_one, voc / "SegmentationClassContext", "SegmentationContext/{}.txt"),
        "official order": (by_official, voc / "SegmentationClassContext", "Main/{}.txt"),
        "paddle": (from_zero, voc / "Context", "Segmentation/{}_context.txt"),
        "old paddle": (from_one, voc / "Context", "Segmentation/{}_context.txt"),
    }[form]
    for name, split, step in (("2008_000002", "train", 1), ("2008_000003", "val", -1)):
        photograph(voc / "JPEGImages" / f"{name}.jpg")
        labels = [[values[n] for n in row][::step] for row in CONTEXT]
        if form == "mat":
            mat(folder / f"{name}.mat", LabelMap=np.uint16(labels))
        else:
            png(folder / f"{name}.png", labels)
        text(voc / "ImageSets" / lists.format(split), f"{name}\n")
    order = "\n".join(f"{i}: {n}" for i, n in enumerate(OFFICIAL_59, 1))
    # Beside the PNGs it tells their order; beside trainval/ it is only part of the download
    text((folder if form == "official order" else voc) / "59_labels.txt", order)
    return root


def coco_stuff_10k(root, version="1.1"):
    """Photograph 49 (train) and 64 (test): unlabelled, person, banner, wood, in both versions."""
    from scaseg.data.datasets.coco_stuff import CLASSES, NAMES

    # the authors' own script to 1.1 spells unused names otherwise than their labels.txt
    spelt = {"eye glasses": "eyeglasses", "hair brush": "hairbrush"}
    spelt |= {name: f"{name}-things" for name in ("mirror", "desk", "door")}
    names, ids = {
        "1.1": (cell(spelt.get(n, n) for n in NAMES), [[0, 1, 13], [92, 182, 0]]),
        "1.0": (cell(["unlabeled", *CLASSES]).T, [[1, 2, 13], [82, 172, 1]]),
    }[version]
    for number, split in ((49, "train"), (64, "test")):
        name = f"COCO_train2014_{number:012}"
        photograph(root / "images" / f"{name}.jpg")
        mat(
            root / "annotations" / f"{name}.mat",
            S=np.uint8(ids),
            names=names,
            captions=cell(["a thing", "some stuff"]),
            regionMapStuff=np.uint16([[1, 2, 3], [4, 5, 6]]),
            regionLabelsStuff=np.uint8([[1]]),
        )
        text(root / "imageLists" / f"{split}.txt", f"{name}\n")
    return root


COCO_CLASSES = [[255, 0, 11], [80, 170, 255]]  # what must come of both versions


def coco_stuff_164k(root, images="images"):
    for number, split in ((9, "train"), (139, "val")):
        photograph(root / images / f"{split}2017" / f"{number:012}.jpg")
        labels = root / "annotations" / f"{split}2017"
        png(labels / f"{number:012}.png", [[255, 0, 12], [91, 181, 255]])
        png(labels / f"{number:012}_labelTrainIds.png", [[255, 0, 11], [80, 170, 255]])
    return root
