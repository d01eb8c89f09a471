"""A legend below a picture: the classes that occur in it, the largest first."""

from __future__ import annotations

from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from scaseg.plots.palette import Palette

PAPER, INK = (255, 255, 255), (40, 40, 40)
SMALL = 0.001  # classes with a smaller share are counted, not named
FEWEST = 8  # rows that a legend may always have; more only up to the picture's height

Entry = tuple[tuple[int, int, int] | None, str]


def add_legend(picture: Image.Image, areas: Mapping[str, float], palette: Palette) -> Image.Image:
    """Add a legend below a picture: color, name and area of each class that occurs, in columns.

    areas: of every class, in the order of the palette. Where there are too many to be read, the
    smallest are counted together.
    """
    size = max(11, min(max(picture.size) // 45, 200))  # of the font: legible at full view
    font = ImageFont.load_default(size)
    gap, line = max(4, size // 2), round(1.6 * size)
    entries = _entries(areas, palette)
    column = max(round(font.getlength(text)) for _, text in entries) + 2 * size + 2 * gap
    width = max(picture.width, column + gap)
    columns = max(1, min((width - gap) // column, len(entries)))
    most = columns * max(FEWEST, picture.height // line)
    if len(entries) > most:
        entries = _entries(areas, palette, most - 1)
    rows = -(-len(entries) // columns)

    sheet = Image.new("RGB", (width, picture.height + rows * line + 2 * gap), PAPER)
    sheet.paste(picture, ((width - picture.width) // 2, 0))
    draw = ImageDraw.Draw(sheet)
    for index, (color, text) in enumerate(entries):
        left = gap + index // rows * column
        top = picture.height + gap + index % rows * line
        middle = top + line // 2
        if color is not None:
            half = size // 2
            box = (left, middle - half, left + 2 * half, middle + half)
            draw.rectangle(box, fill=color, outline=INK)
        draw.text((left + size + gap, middle), text, font=font, fill=INK, anchor="lm")
    return sheet


def _entries(areas: Mapping[str, float], palette: Palette, most: int | None = None) -> list[Entry]:
    """Color and text of each line, the largest class first: at most `most`, and the rest."""
    found = sorted(
        zip(areas.values(), areas, palette, strict=True), key=lambda entry: entry[0], reverse=True
    )
    named = [entry for entry in found if entry[0] >= SMALL][:most]
    rest = [share for share, _, _ in found[len(named) :] if share > 0]
    lines: list[Entry] = [
        (color, f"{shorten(name, 40)}  {100 * share:.1f} %") for share, name, color in named
    ]
    if rest:
        lines.append((None, f"{len(rest)} more  {100 * sum(rest):.1f} %"))
    return lines


def shorten(name: str, most: int) -> str:
    """Return a name on one line, of at most so many letters.

    >>> shorten("tall building", 10)
    'tall buil…'
    """
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"
