"""What pip would install, and what would be published: the same bytes from the same commit,

with everything that its commands need, and nothing else.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

import scaseg
from scaseg.io.model_folder import BUILTIN
from tests.docs.pages import ROOT
from tests.docs.test_troubleshooting import texts_of
from tests.scenes import write_scenes

SOURCE = ROOT / "src" / "scaseg"
MOST_MEGABYTES = 9  # 8 of them are the built-in model


def files_of_the_package():
    """All files of src/scaseg, as a wheel names them."""
    found = (path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {f"scaseg/{path.relative_to(SOURCE)}" for path in found}


def build(place, mask):
    """Build in a copy of the checkout with times and modes of its own."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, place)
    (place / "tests").mkdir()
    (place / "tests" / "test_something.py").touch()  # setuptools would take it along
    aside = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "src", ignore=aside)
    for path in place.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        os.utime(path, (mask, mask))
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "dist.py")],
        cwd=place,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
        umask=mask,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return place / "dist"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source archive, built without a network, beside the checkout."""
    return build(tmp_path_factory.mktemp("package"), 0o022)


def test_the_same_commit_gives_the_same_bytes(built, tmp_path):
    again = build(tmp_path, 0o077)
    for path in sorted(built.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        modes = {wheel.getinfo(name).external_attr >> 16 for name in names}
    package = {name for name in names if not name.startswith("scaseg-")}
    assert package == files_of_the_package()
    assert {name.partition(".dist-info/")[2] for name in names - package} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    }
    assert modes == {0o100644}
    assert path.stat().st_size < MOST_MEGABYTES * 1e6
    assert {"scaseg/py.typed", "scaseg/builtin/outdoor/model.safetensors"} <= package
    assert {"scaseg/recipes/own_folder.yaml", "scaseg/demo/report.html"} <= package


def test_the_source_archive_holds_it_and_nothing_else(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    assert {name.removeprefix("src/") for name in files if name.startswith("src/scaseg/")} == (
        files_of_the_package()
    )
    rest = {name for name in files if not name.startswith(("src/scaseg/", "src/scaseg.egg-info/"))}
    assert rest == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg")
    }
    assert path.stat().st_size < MOST_MEGABYTES * 1e6


COMMANDS = """
import sys
from scaseg.cli import main
import scaseg
from scaseg.io.model_folder import find_model
print(find_model("outdoor"))
main(["recipes", "own_folder", "--copy", "mine.yaml"])
main(["predict", "photo.png", "--quiet"])
main(["explain", "photo.png", "--point", "20,20", "--out", "why.png", "--quiet"])
main(["train", "own_folder", "--data", "data", "--out", "run", "--fast-dev-run", "--device", "cpu",
      "--model.backbone_weights", "outdoor", "--training.batch_size", "2",
      "--augment.crop", "[64,64]"])
"""


def test_it_works_where_it_was_installed(built, tmp_path):
    """Without a checkout; demo and export take longer, and were tried by hand (docs/log.md)."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    (tmp_path / "work").mkdir()
    image = np.random.default_rng(0).integers(0, 256, (64, 80, 3), np.uint8)
    Image.fromarray(image).save(tmp_path / "work" / "photo.png")
    write_scenes(tmp_path / "work" / "data", count=6)
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=tmp_path / "work",
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'site' / 'scaseg' / BUILTIN.name / 'outdoor'}\n")
    made = {path.name for path in (tmp_path / "work").iterdir()}
    assert {"mine.yaml", "predictions", "why.png"} <= made


def test_messages_name_nothing_that_a_wheel_has_not():
    for path in SOURCE.rglob("*.py"):
        for text in texts_of(path.read_text(encoding="utf-8")):
            assert "docs/" not in text.replace("huggingface.co/docs/", ""), (path, text)
            assert "CONTRIBUTING" not in text, (path, text)
    for path in SOURCE.rglob("recipes/*.yaml"):
        assert "docs/" not in path.read_text(encoding="utf-8"), path


def test_the_citation_is_of_this_version():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == scaseg.__version__
    assert citation["preferred-citation"]["year"] == 2017
