"""A page of photographs with their labels over them, by class and by problem, in one HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain, islice
from string import Template
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.decode.bands import picture
from scaseg.data.sample import IGNORE
from scaseg.data.validation.check import Reading
from scaseg.data.validation.report import Report, by_kind
from scaseg.data.validation.samples import Finding, LabelStatistics, in_parallel
from scaseg.errors import UserError, plural
from scaseg.io.ownership import MARK
from scaseg.io.paths import shown
from scaseg.plots.palette import Palette, default_palette

SIDE = 320  # pixels of a picture's longer side on the page
PER_CLASS = 6  # photographs of each class and of each problem
OVERVIEW = 12
NO_CLASS = (255, 0, 255)  # the color of labels that are no class
SAMPLED = 40  # training images that are read for the page of a run
GENERATOR = f'<meta name="generator" content="{MARK} data look">'

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
$generator
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title><style>
:root { color-scheme: light dark; --line: #8885; --dim: #767676; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; margin: 0; } h2 { font-size: 1.15rem;
  margin: 2rem 0 .5rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h2 small, figcaption, .note { font-weight: 400; font-size: .85rem; color: var(--dim); }
nav { position: sticky; top: 0; background: Canvas; padding: .5rem 0; z-index: 1; }
nav details { max-height: 40vh; overflow: auto; } nav a { margin-right: 1rem; color: inherit;
  white-space: nowrap; } i { display: inline-block; width: .8em; height: .8em; margin-right: .3em;
  border: 1px solid var(--line); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(220px, 45%), 1fr));
  gap: .8rem; align-items: start; }
figure { margin: 0; } figure div { position: relative; } img { width: 100%; display: block; }
img + img { position: absolute; inset: 0; height: 100%; opacity: .6; image-rendering: pixelated; }
figure:hover img + img, body:has(#labels:not(:checked)) img + img { visibility: hidden; }
figcaption { overflow-wrap: anywhere; }
</style></head><body>
<h1>$title</h1><p>$summary</p>
<nav><label><input type="checkbox" id="labels" checked> labels over the photographs</label>
<span class="note">(point at one to see it without)</span>
<details><summary>classes and problems</summary>$links</details></nav>
$sections
</body></html>
""")


class Example(NamedTuple):
    """A photograph (H, W, 3), its labels (stretched over it, whatever their size), and a line."""

    image: NDArray[np.uint8]
    labels: NDArray[np.int32] | None
    caption: str


class _Section(NamedTuple):
    title: str
    note: str
    examples: Iterable[Example]
    only: int | None = None  # the one class to color


def check_page(reading: Reading, report: Report, *, per_class: int = PER_CLASS) -> str:
    """Return the page of data that were checked: every problem, then every class, as HTML."""
    dataset, checks = reading.dataset, reading.checks
    inside = f"{shown(dataset.root)}/"
    by_place = {
        shown(path).removeprefix(inside): index
        for index, check in enumerate(checks)
        for path in (check.image, check.labels)
        if path is not None
    }

    def example(index: int, caption: str) -> Example | None:
        check, labels = checks[index], None
        try:
            image = picture(dataset.read_image(check.image))
            if check.statistics is not None and check.labels is not None:
                labels = dataset.to_classes(dataset.read_values(check.labels), check.labels)
        except (UserError, OSError):
            return None  # it is among the problems, by its name
        return Example(image, labels, caption)

    def of_kind(kind: list[Finding]) -> _Section:
        examples = []
        for one in kind[:per_class]:
            index = by_place.get(one.place)
            caption = f"{one.place}: {one.detail}" if one.detail else one.place
            if index is not None and (found := example(index, caption)):
                examples.append(_shrunk(found))
        count = plural(len(kind), "time")
        if 0 < len(examples) < len(kind):
            count = f"{len(examples)} of {len(kind)} shown"
        note = f"{count}; {kind[0].remedy}. " + ", ".join(one.place for one in kind[:20])
        return _Section(f"{kind[0].severity}: {kind[0].problem}", note, examples)

    def of_class(index: int) -> Example | None:
        fits = checks[index].size == checks[index].label_size
        return example(index, names[index]) if fits else None

    problems = map(of_kind, by_kind(report.findings))
    pixels = [{} if one.statistics is None else one.statistics.pixels for one in checks]
    names = [shown(check.image).removeprefix(inside) for check in checks]
    sections = _by_class(report.classes, pixels, of_class, per_class)
    counts = ", ".join(f"{split} {count}" for split, count in report.splits.items())
    found = f"{plural(len(report.errors), 'error')}, {plural(len(report.warnings), 'warning')}"
    summary = f"{counts} photographs; {len(report.classes)} classes; {found}"
    return _render(report.root, summary, problems, sections, report.classes, dataset.palette)


def dataset_page(
    dataset: SegmentationDataset, classes: Sequence[str], *, per_class: int = PER_CLASS
) -> str:
    """Return the page of a training's images, from up to SAMPLED of them, evenly spaced."""
    count = min(SAMPLED, len(dataset))

    def read(number: int) -> tuple[Mapping[int, int], Example | None]:
        try:
            sample = dataset[number * len(dataset) // count]
        except UserError:
            return {}, None  # training says so when it meets it; a page need not stop it
        example = Example(picture(sample.image), sample.labels, sample.name)
        return LabelStatistics.of(sample.labels).pixels, _shrunk(example)

    pixels, examples = zip(*in_parallel(read, range(count)), strict=True)

    def example(at: int) -> Example | None:
        found: Example | None = examples[at]
        return found

    sections = _by_class(classes, pixels, example, per_class)
    summary = f"{count} of {len(dataset)} training images; {len(classes)} classes"
    title = "generated images" if dataset.root is None else str(dataset.root)
    return _render(title, summary, [], sections, classes, dataset.palette)


def _by_class(
    classes: Sequence[str],
    pixels: Sequence[Mapping[int, int]],
    example: Callable[[int], Example | None],
    per_class: int,
) -> Iterator[_Section]:
    """An overview, then a section for each class: photographs with much of it to little of it."""
    spaced = range(0, len(pixels), -(-len(pixels) // OVERVIEW) or 1)
    others = (index for index in range(len(pixels)) if index not in spaced)  # where some do not fit
    overview = islice(_examples(example, chain(spaced, others)), len(spaced))
    yield _Section("All classes", "", overview)
    total = sum(chain(*(one.values() for one in pixels))) or 1
    for label, name in enumerate(classes):
        holders = [index for index, one in enumerate(pixels) if one.get(label)]
        holders.sort(key=lambda index: -pixels[index][label])
        share = sum(pixels[index][label] for index in holders) / total
        step = max(1, (len(holders) - 1) / max(1, per_class - 1))
        chosen = [holders[round(at * step)] for at in range(min(per_class, len(holders)))]
        note = f"{100 * share:.2g} % of the labelled pixels, in {len(holders)} of {len(pixels)}"
        yield _Section(name, note, _examples(example, chosen), only=label)


def _examples(example: Callable[[int], Example | None], chosen: Iterable[int]) -> Iterator[Example]:
    found = (example(index) for index in chosen)
    return (one for one in found if one is not None and one.labels is not None)


def _render(
    title: str,
    summary: str,
    problems: Iterable[_Section],
    by_class: Iterable[_Section],
    classes: Sequence[str],
    palette: Palette | None,
) -> str:
    colors = palette or default_palette(len(classes))
    links, parts = [], []
    for number, section in enumerate(chain(problems, by_class)):
        figures = "".join(_figure(one, colors, section.only) for one in section.examples)
        if not figures and not section.note:  # nothing to show, nothing to say
            continue
        chip = "" if section.only is None else _chip(colors[section.only])
        name = escape(section.title)
        links.append(f'<a href="#s{number}">{chip}{name}</a>')
        parts.append(f'<h2 id="s{number}">{chip}{name} <small>{escape(section.note)}</small></h2>')
        parts.append(f'<div class="grid">{figures}</div>')
    legend = "".join(
        f"<span>{_chip(color)}{escape(name)} </span>"
        for color, name in zip(colors, classes, strict=False)
    )
    return _PAGE.substitute(
        generator=GENERATOR,
        title=escape(title),
        summary=f"{escape(summary)}<br>{legend}",
        links=" ".join(links),
        sections="\n".join(parts),
    )


def _chip(color: tuple[int, int, int]) -> str:
    return '<i style="background:#{:02x}{:02x}{:02x}"></i>'.format(*color)


def _shrunk(example: Example) -> Example:
    """Make an example as small as the page shows it."""
    photograph = Image.fromarray(example.image)
    photograph.thumbnail((SIDE, SIDE))
    labels = example.labels
    if labels is not None:
        rows, columns = (
            np.arange(new) * old // new
            for new, old in zip(photograph.size[::-1], labels.shape, strict=True)
        )
        labels = labels[np.ix_(rows, columns)]
    return Example(np.asarray(photograph), labels, example.caption)


def _figure(example: Example, colors: Palette, only: int | None) -> str:
    image, labels, caption = _shrunk(example)
    pictures = _embedded(Image.fromarray(image), "jpeg", quality=80)
    if labels is not None:
        table = np.zeros((len(colors) + 2, 4), np.uint8)  # unlabelled, and no class, come last
        chosen = range(len(colors)) if only is None else (only,)
        for label in chosen:
            table[label] = (*colors[label], 255)
        table[-1] = (*NO_CLASS, 255)
        inside = (labels >= 0) & (labels < len(colors))
        index = np.where(inside, labels, np.where(labels == IGNORE, len(colors), len(colors) + 1))
        pictures += _embedded(Image.fromarray(table[index]), "png", compress_level=3)
    return f"<figure><div>{pictures}</div><figcaption>{escape(caption)}</figcaption></figure>"


def _embedded(picture: Image.Image, kind: str, **options: int) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" src="data:image/{kind};base64,{data}">'
