"""What pip would install, and what would be published, hold the built-in model."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from scaseg.io.model_folder import BUILTIN
from tests.docs.pages import ROOT

FILES = {
    f"scaseg/{path.relative_to(BUILTIN.parent)}" for path in BUILTIN.rglob("*") if path.is_file()
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source archive, built without a network, beside the checkout."""
    place = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    aside = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "src", ignore=aside)
    code = "import setuptools.build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "dist"


def test_the_wheel_holds_it(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        readable = all(wheel.getinfo(name).external_attr >> 16 & 0o444 == 0o444 for name in FILES)
    assert names >= FILES | {"scaseg/py.typed", "scaseg/ops/README.md"}
    assert "scaseg/builtin/outdoor/model.safetensors" in FILES
    assert readable


def test_the_source_archive_holds_it(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
    assert names >= FILES


def test_it_is_found_where_it_was_installed(built, tmp_path):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    code = "from scaseg.io.model_folder import find_model; print(find_model('outdoor'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{tmp_path / 'site' / 'scaseg' / 'builtin' / 'outdoor'}\n"
