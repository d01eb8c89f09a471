"""scaseg predict as the tests call it."""

import pytest

from scaseg.cli import main
from scaseg.inference.outputs import RECORD

CLASSES = ("sky", "tree", "road")


def predict(*arguments, model, out):
    main(["predict", *map(str, arguments), "--model", model, "--out", str(out), "--device", "cpu"])


def refused(capsys, *arguments, code=2, **options):
    with pytest.raises(SystemExit) as ended:
        predict(*arguments, **options)
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.count("\n") == said.count("error: ") == 1, said
    return said


def written(folder):
    """All files below a folder but the record of who made them."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != RECORD]
    return sorted(str(path.relative_to(folder)) for path in files)
