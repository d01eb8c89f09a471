"""Colors of classes: label maps in color, and legends below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from scaseg.errors import UserError

Color = tuple[int, int, int]
Palette = Sequence[Color]
UNLABELLED = (0, 0, 0)
PAPER, INK = (255, 255, 255), (40, 40, 40)
SMALL = 0.001  # classes with a smaller share are counted, not named
LONGEST_NAME = 40  # letters of a class that pictures show
FEWEST = 8  # rows that a legend may always have; more only up to the picture's height

# Ten pleasant colors, then each time the one farthest (in OKLab, where equal steps look equal) from
# all before it and from white, black and gray. Written out: a class keeps its color for ever.
_COLORS = bytes.fromhex("""
    4e79a7 f28e2b 59a14f e15759 76b7b2 edc948 b07aa1 9c755f ff9da7 8cd17d 600858 084808 0810b0
    8838d8 f870f8 c00890 901808 104068 0868f8 08f8f8 c8c0f8 c0f808 9088f8 604840 08b0f8 503098
    087060 884888 d8c8b0 686808 08f880 f848a0 b8f8c8 b09808 48c810 b860d0 c00848 0858b0 800898
    088008 f8a0f0 189890 6860c8 b05008 88d8f8 8898c8 b0a080 901058 4038d0 a85060 602030 08d8b8
    585078 4088e8 e078c0 f8e8a0 b8d008 c8a0b8 c07818 284840 c098e8 d08070 c05090 e01008 f0f058
    f8d8f0 483058 186080 a828b8 60f8b8 805010 808850 483808 f86008 08c8e0 08c878 202888 d840c0
    c0f0f8 f8b080 08a808 b0f080 6858f8 6808b8 98d8c0 a060f8 90b008 c0b868 88b8f8 1898c0 e82868
    f87090 9068b0 806070 783858 88b078 206828 686850 388858 500878 08b898 703008 d080f8 80e830
    683078 7840a8 b82810 4008b0 c8d890 e0a808 a8b8d0 980880 5050a0 485830 c86880 f88060 f8b8e0
    884840 708808 987008 6898a0 088090 b02870 7880d0 d8a090 f8e0c8 6878f8 983048 800830 18b0b8
    c89850 70a0f8 6040c0 1070d0 8078a0 d06030 507078 c860f8 e088a0 a048a8 9058c8 50e080 b08888
    383878 60b0d8 a880d0 4058d0 a06088 a8c098 d83088 f0b8b8 c0b818 483038 2038b0 608068 706098
    80d048 c84068 f860c8 60a080 b868b0 a88850 f84030 c0d8f8 88f0e8 60d8d8 70c8a0 085838 b86858
    c8e0c8 a848d8 f0c880 58b840 700808 e06098 385060 089838 08a070 604808 886048 a8a8e0 f890c8
    d8a8e0 084088 98e8a8 780870 406058 f880e0 e0d818 c888c0 507810 c04848 0880c0 90a048 d868d8
    4068b0 d8f090 701848 8870e0 18e058 889880 487048 5890d0 b078f8 305088 0848d8 682098 e07830
    d8c0d8 60b870 883090 a890b8 401090 303850 f85070 d04008 b8d868 e89868 f8b050 8828b8 0870a0
    a8d0d8 984010 78f890 d0b080 a80828 60c8f8 883070 08f0d0 c050b0 a03888 a06870 d83048 684890
    7850d8 703838 08b060 584058 988820 904868 a86830 98b858 583020 e8a0c0 80c0d8 88a8b8 a0a0f8
    08e0f8 384810 6040e0 582048 085858 70a008 f0e070 384098 d888e0
""")


def default_palette(classes: int) -> tuple[Color, ...]:
    """Return a color for each class: the first ones of a sequence that never changes.

    >>> default_palette(2)
    ((78, 121, 167), (242, 142, 43))
    """
    if isinstance(classes, bool) or not isinstance(classes, int) or not 0 <= classes <= 65536:
        raise UserError("classes", f"{classes!r}", "give a whole number up to 65536")
    numbers = [int.from_bytes(_COLORS[at : at + 3]) for at in range(0, len(_COLORS), 3)][:classes]
    # beyond what an eye can tell apart: distinct all the same. An odd step meets every 24-bit
    # color once before it comes back.
    taken, number = set(numbers), 0
    while len(numbers) < classes:
        number = (number + 0x9E3779) % (1 << 24)
        if number not in taken:
            numbers.append(number)
    return tuple((number >> 16, number >> 8 & 255, number & 255) for number in numbers)


def colorize(labels: NDArray[np.integer], palette: Palette, ignore: int = 255) -> NDArray[np.uint8]:
    """Color a label map: (H, W) -> (H, W, 3); `ignore`, where it is no class, is black."""
    table, index = _lookup(labels, palette, ignore)
    return table[index]


def overlay(
    image: NDArray[np.uint8],
    labels: NDArray[np.integer],
    palette: Palette,
    opacity: float = 0.5,
    ignore: int = 255,
) -> NDArray[np.uint8]:
    """Draw a label map over its image: (H, W, 3), (H, W) -> (H, W, 3); unlabelled pixels stay."""
    if not 0 <= opacity <= 1:
        raise UserError("opacity", f"{opacity!r}", "give a number from 0 to 1")
    shape = (*labels.shape, 3)
    if image.shape != shape or image.dtype != np.uint8:
        problem = f"shape {image.shape} and dtype {image.dtype}"
        raise UserError("image", problem, f"labels of {labels.shape} want uint8 {shape}")
    table, index = _lookup(labels, palette, ignore)
    paint = np.round(table * opacity).astype(np.uint8)
    fade = np.round(np.arange(256) * (1 - opacity)).astype(np.uint8)  # of the image's values
    mixed = np.empty_like(image)
    for row in range(0, len(labels), 256):  # large images: no second one in passing
        part = slice(row, row + 256)
        mixed[part] = np.minimum(fade[image[part]].astype(np.uint16) + paint[index[part]], 255)
        blank = index[part] == len(palette)
        mixed[part][blank] = image[part][blank]
    return mixed


def _lookup(
    labels: NDArray[np.integer], palette: Palette, ignore: int
) -> tuple[NDArray[np.uint8], NDArray[np.integer]]:
    """Return a table of colors, unlabelled last, and each pixel's index into it."""
    if labels.ndim != 2:
        raise UserError("labels", f"shape {labels.shape}", "give (H, W)")
    classes = len(palette)
    index = labels if 0 <= ignore < classes else np.where(labels == ignore, classes, labels)
    low, high = (int(index.min()), int(index.max())) if index.size else (0, 0)
    if low < 0 or high > classes or (high == classes and bool((labels == classes).any())):
        wrong = low if low < 0 else high
        raise UserError("labels", f"{wrong}", f"{classes} colors are for 0 to {classes - 1}")
    return np.array([*palette, UNLABELLED], np.uint8), index


def add_legend(
    picture: Image.Image,
    areas: Mapping[str, float],
    palette: Palette,
    *,
    size: int | None = None,
    shares: bool = True,
) -> Image.Image:
    """Add a legend below a picture: color, name and area of each class that occurs, in columns.

    areas: of every class, in the order of the palette. Where there are too many to be read, the
    smallest are counted together. size: of the font, in pixels (None: legible at full view).
    shares=False: names alone.
    """
    size = size or max(11, min(max(picture.size) // 45, 200))
    font = ImageFont.load_default(size)
    gap, line = max(4, size // 2), round(1.6 * size)
    entries = _entries(areas, palette, shares=shares)
    column = max(round(font.getlength(text)) for _, text in entries) + 2 * size + 2 * gap
    width = max(picture.width, column + gap)
    columns = max(1, min((width - gap) // column, len(entries)))
    most = columns * max(FEWEST, picture.height // line)
    if len(entries) > most:
        entries = _entries(areas, palette, most - 1, shares=shares)
    rows = -(-len(entries) // columns)

    sheet = Image.new("RGB", (width, picture.height + rows * line + 2 * gap), PAPER)
    sheet.paste(picture, ((width - picture.width) // 2, 0))
    draw = ImageDraw.Draw(sheet)
    for index, (color, text) in enumerate(entries):
        left, half = gap + index // rows * column, size // 2
        middle = picture.height + gap + index % rows * line + line // 2
        if color is not None:
            box = (left, middle - half, left + 2 * half, middle + half)
            draw.rectangle(box, fill=color, outline=INK)
        draw.text((left + size + gap, middle), text, font=font, fill=INK, anchor="lm")
    return sheet


def _entries(
    areas: Mapping[str, float], palette: Palette, most: int | None = None, *, shares: bool = True
) -> list[tuple[Color | None, str]]:
    """Color and text of each line, the largest class first: at most `most`, and the rest."""
    classes = zip(areas.values(), areas, palette, strict=True)
    found = sorted(classes, key=lambda entry: entry[0], reverse=True)
    named = [entry for entry in found if entry[0] >= SMALL][:most]
    rest = [share for share, _, _ in found[len(named) :] if share > 0]

    def line(name: str, share: float) -> str:
        return f"{name}  {100 * share:.1f} %" if shares else name

    lines: list[tuple[Color | None, str]] = [
        (color, line(shorten(name, LONGEST_NAME), share)) for share, name, color in named
    ]
    if rest:
        lines.append((None, line(f"{len(rest)} more", sum(rest))))
    return lines


def shorten(name: str, most: int) -> str:
    """Return a name on one line, of at most so many letters.

    >>> shorten("tall building", 10)
    'tall buil…'
    """
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"
