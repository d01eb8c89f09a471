"""Data that may be trained on and judged by: what `data check` calls an error is refused first.

Every file is read, as `data check` reads it. That such data were sound is remembered in the user's
cache, so that a run that is continued or repeated does not pay twice; a file that was touched since
makes it another question.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import PIL

from scaseg.data.datasets.paired import FilePair, PairedDataset
from scaseg.data.validation.problems import class_problems, list_problems, value_problems
from scaseg.data.validation.report import Problem
from scaseg.data.validation.sample import Look, look_at, look_at_photograph
from scaseg.data.validation.scan import Progress, count_pixels, in_parallel
from scaseg.io.atomic import whole_file

VERSION = 1  # raise it when the check learns something: what older ones found sound may not be
CACHE = "SCASEG_CACHE"  # the environment's word for where to remember; empty: nowhere

Pixels = tuple[tuple[int, ...], ...]  # of each class, in each part


class Part(NamedTuple):
    """Some of the data, and the list that they stand in: lists must not share a photograph."""

    split: str
    data: PairedDataset


def require_sound(
    parts: Sequence[Part],
    *,
    apart_from: PairedDataset | None = None,
    trained_on: bool = True,
    progress: Progress | None = None,
) -> Pixels:
    """Refuse what `data check` calls an error, ValueError naming the first; count the pixels.

    All parts are of one data set. apart_from: the test images of a training, none of which may be
    among the parts; nothing else is asked of them. trained_on: the first part must teach something,
    and masks of 0 and 255 that nobody explained are an error; a few photographs that are judged may
    show one class.
    """
    place = _place(parts, apart_from, trained_on=trained_on)
    found = None if place is None else _recall(place)
    if found is None:
        found = _read(parts, apart_from, trained_on=trained_on, progress=progress)
        if place is not None:
            with suppress(OSError):  # a full disk, a home of somebody else: asked again next time
                place.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(place, durable=False) as temporary:
                    temporary.write_text(json.dumps(found), encoding="utf-8")
    return found


def refuse(problems: Sequence[Problem]) -> None:
    """Raise the first error, if there is one, and say how many more files have some."""
    errors = [problem for problem in problems if problem.is_error]
    if errors:
        rest = len({error.place for error in errors} - {errors[0].place})
        more = f" (and {rest} more files; `scaseg data check` lists all)" if rest else ""
        raise ValueError(errors[0].line + more)


def _read(
    parts: Sequence[Part],
    apart_from: PairedDataset | None,
    *,
    trained_on: bool,
    progress: Progress | None,
) -> Pixels:
    data = parts[0].data
    own = list(dict.fromkeys(pair for part in parts for pair in part.data.pairs))
    there = {pair.image for pair in own}
    test = [] if apart_from is None else list(dict.fromkeys(apart_from.pairs))
    alone = [pair.image for pair in test if pair.image not in there]

    def look(number: int) -> Look:
        if number < len(own):
            return look_at(data, own[number].image, own[number].labels)
        return look_at_photograph(data, alone[number - len(own)])

    looks = in_parallel(look, range(len(own) + len(alone)), progress=progress)
    images = [*(pair.image for pair in own), *alone]
    digests = {image: one.digest for image, one in zip(images, looks, strict=True)}
    looks = looks[: len(own)]  # what else is wrong with test images is told when they are judged
    facts = {
        pair.labels: one.labels
        for pair, one in zip(own, looks, strict=True)
        if one.labels is not None
    }
    lists: dict[str, list[FilePair]] = {}
    for part in parts:
        named = lists.setdefault(part.split, [])
        before = set(named)  # two parts of one list may share: each is looked at for itself
        named += [pair for pair in part.data.pairs if pair not in before]
    if test:
        lists["test"] = test
    known = None if data.classes is None else len(data.classes)
    pixels = tuple(
        count_pixels(
            [facts[pair.labels] for pair in part.data.pairs if pair.labels in facts], known
        )
        for part in parts
    )
    problems = [
        *chain(*(one.problems for one in looks)),
        *value_problems(data, facts, masks=trained_on),
        *list_problems(lists, digests),
    ]
    if trained_on:
        names = data.classes or tuple(map(str, range(len(pixels[0]))))
        problems += class_problems(data, names, pixels[0], pixels[0])
    refuse(problems)
    return pixels


def _place(
    parts: Sequence[Part], apart_from: PairedDataset | None, *, trained_on: bool
) -> Path | None:
    """Where it is remembered that these very files were sound; None: nowhere."""
    cache = os.environ.get(CACHE)
    if cache == "":
        return None
    digest = hashlib.sha256(repr((VERSION, PIL.__version__, trained_on)).encode())
    try:
        for part in parts:
            data = part.data
            options = sorted(data.label_map.items()), data.reduce_zero_label, data.ignore_index
            said = part.split, type(data).__name__, data.classes, data.max_pixels, options
            digest.update(repr(said).encode())
            for pair in data.pairs:
                digest.update(_stamp(pair.image) + _stamp(pair.labels))
        for pair in [] if apart_from is None else apart_from.pairs:
            digest.update(b"test" + _stamp(pair.image))
        root = Path(cache) if cache else _user_cache() / "scaseg"
    except (OSError, RuntimeError):  # a file that went away, a user without a home
        return None
    return root / "sound" / f"{digest.hexdigest()}.json"


def _stamp(path: Path) -> bytes:
    """What changes when a file is touched: also its place on the disk, and when that was made."""
    at = os.stat(path)
    name = os.path.abspath(path)
    return repr((name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)).encode()


def _user_cache() -> Path:
    if os.name == "nt" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path.home() / ".cache"


def _recall(place: Path) -> Pixels | None:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        return tuple(tuple(int(count) for count in part) for part in found)
    except (OSError, ValueError, TypeError):  # not there; or torn, and then it is asked again
        return None
