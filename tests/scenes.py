"""Small photographs with label maps that can be learned in seconds: a class is a colour."""

import numpy as np
from PIL import Image

COLORS = ((200, 60, 40), (40, 160, 60), (50, 80, 210))
CLASSES = ("brick", "leaf", "water")
# own_folder, which train and compare take without a recipe, made small enough for scenes
SMALL = ("--backbone", "tiny", "--backbone-weights", "null", "--head", "auto")
SMALL += ("--augment.fit", "null", "--augment.scale", "null", "--augment.crop", "null")


def write_scenes(root, count=12, *, size=(64, 80), seed=0, lists=True, classes=CLASSES):
    """Write images/ and labels/ of odd sizes around `size`, with classes.txt and lists."""
    random = np.random.default_rng(seed)
    for folder in ("images", "labels"):
        (root / folder).mkdir(parents=True)
    names = [f"scene{index:02}" for index in range(count)]
    for index, name in enumerate(names):
        height, width = (side + int(random.integers(-6, 7)) for side in size)
        labels = np.full((height, width), index % len(COLORS), np.uint8)
        if index % 2:  # every other one has two classes, side by side
            labels[:, : int(random.integers(width // 3, 2 * width // 3))] = (index + 1) % 3
        image = np.asarray(COLORS, np.float64)[labels] + random.normal(0, 20, (height, width, 3))
        labels[:1] = 255  # unlabelled
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / "images" / f"{name}.png")
        Image.fromarray(labels).save(root / "labels" / f"{name}.png")
    if classes is not None:
        (root / "classes.txt").write_text("\n".join(classes))
    if lists:
        quarter = count // 4
        parts = {"train": names[2 * quarter :], "val": names[:quarter]}
        parts["test"] = names[quarter : 2 * quarter]
        for split, chosen in parts.items():
            (root / f"{split}.txt").write_text("\n".join(chosen))
    return root
