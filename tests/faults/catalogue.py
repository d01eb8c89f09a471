"""A small world of data, models and runs, and a command that must be refused in it."""

import hashlib
import os
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

from scaseg.cli import main
from tests.scenes import CLASSES, SMALL, write_scenes

LIGHT = (*SMALL, "--device", "cpu", "--workers", "0", "--epochs", "1")
LIGHT += ("--model.context_options.hidden", "8")
TRAIN = ("train", "--data", "data", "--out", "out", *LIGHT, "--context", "sca")
ROOM = 1 << 30  # bytes that a refusal may take beside what is there


class Case(NamedTuple):
    """A command, what is spoilt before, and what must be said."""

    name: str
    arguments: tuple[str, ...]
    said: str
    spoil: object = None  # called in the world, which is the working folder
    code: int = 2
    begun: bool = False  # lines that tell of work may come before the error


def cases(*rows):
    """Parametrise a test by cases; the rest of the file is read as a table."""
    found = [Case(*row) for row in rows]
    assert len({case.name for case in found}) == len(found)
    return pytest.mark.parametrize("case", found, ids=[case.name for case in found])


def build_world(root: Path) -> Path:
    """data/, two models of it, a run that was cut off, photo.png and label.png."""
    from scaseg import create_model

    write_scenes(root / "data", 8, size=(32, 40))
    for name, context in (("model", "sca"), ("other", "none")):
        options = {"hidden": 8} if context == "sca" else {}
        model = create_model("tiny", context, "pointwise", classes=CLASSES, **options)
        model.save_pretrained(root / name)
    main(
        [
            "train",
            "--data",
            str(root / "data"),
            "--out",
            str(root / "run"),
            *LIGHT,
            "--context",
            "sca",
            "--quiet",
        ]
    )
    shutil.rmtree(root / "run" / "model")  # as if it had been cut off
    shutil.copy(root / "data" / "images" / "scene01.png", root / "photo.png")
    shutil.copy(root / "data" / "labels" / "scene01.png", root / "label.png")
    Image.new("RGB", (4, 4)).save(root / "tiny.png")
    return root


def refuse(case, capsys):
    """Run a command in the working folder: it must end as the case says, and change nothing."""
    if case.spoil is not None:
        case.spoil()
    before = fingerprint(Path())
    with bounded_memory(), pytest.raises(SystemExit) as stop:
        main(list(case.arguments))
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert lines, stop.value.code
    assert lines[-1].startswith("error: "), printed.err
    assert case.said in lines[-1], (case.said, lines[-1])
    assert "; " in lines[-1], "what fits is not said"
    assert stop.value.code == case.code, lines[-1]
    assert case.begun or len(lines) == 1, printed.err
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert "Traceback" not in printed.err
    assert all(sign.isprintable() for sign in lines[-1]), repr(lines[-1])
    assert len(lines[-1]) < 700
    assert fingerprint(Path()) == before


def fingerprint(root: Path) -> dict[str, str]:
    """Every name below a folder, and what is behind it."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path).decode("ascii", "backslashreplace")
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            status = path.stat()
            large = status.st_size > 1 << 24  # a written file has another time
            content = status.st_mtime_ns if large else hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = f"{status.st_mode:o} {status.st_size} {content}"
        else:
            found[name] = f"{path.stat().st_mode:o}"
    return found


@contextmanager
def bounded_memory():
    """Fail where a refusal allocates what a hostile file asks for."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
