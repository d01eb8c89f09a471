"""One look at a photograph and its label map, both read whole: what they are, what is wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.decode.image import read_image
from scaseg.data.validation.problems import size_problems
from scaseg.data.validation.report import Problem
from scaseg.data.validation.scan import LabelFacts, attempt, read_label_facts
from scaseg.io.paths import shown

SMALLEST = 8  # pixels a side: the network takes no less


class Look(NamedTuple):
    """What reading one pair has shown; digest: of the photograph's pixels, for finding twins."""

    size: tuple[int, int] | None
    digest: bytes | None
    labels: LabelFacts | None
    problems: list[Problem]


def look_at(dataset: PairedDataset, image: Path, labels: Path) -> Look:
    """Read both files of a pair, whole."""
    photograph = look_at_photograph(dataset, image)
    facts = attempt(lambda: read_label_facts(dataset, labels), labels)
    problems = photograph.problems
    if isinstance(facts, str):
        problems.append(problem_of(facts, dataset.root))
        return photograph
    if not facts.pixels:
        remedy = "it teaches nothing; label it, or leave it out"
        problems.append(Problem(shown(labels), "is all unlabelled", remedy, is_error=False))
    if photograph.size is not None:
        problems += size_problems(image, labels, photograph.size, facts.size)
    return photograph._replace(labels=facts)


def look_at_photograph(dataset: PairedDataset, image: Path) -> Look:
    """Read a photograph alone."""
    pixels = attempt(lambda: read_image(image, max_pixels=dataset.max_pixels), image)
    if isinstance(pixels, str):
        return Look(None, None, None, [problem_of(pixels, dataset.root)])
    size = pixels.shape[0], pixels.shape[1]
    problems = [too_small(image, size)] if min(size) < SMALLEST else []
    digest = hashlib.blake2b(pixels.data, person=b"%dx%d" % size, digest_size=16).digest()
    return Look(size, digest, None, problems)


def too_small(image: Path, size: tuple[int, ...]) -> Problem:
    """Say that the network would have nothing to look at."""
    what = f"is smaller than {SMALLEST} x {SMALLEST} pixels"
    return Problem(shown(image), what, "enlarge it", "{} x {}".format(*size))


def problem_of(message: str, root: Path, remedy: str = "repair or remove it") -> Problem:
    """Take `place: what; remedy` apart, whatever the folder is called."""
    before = shown(root) if message.startswith(shown(root)) else ""
    place, _, said = message.removeprefix(before).partition(": ")
    return Problem.from_message(before + place, said, remedy)
