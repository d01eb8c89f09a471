import shutil

import pytest

from tests.faults.catalogue import build_world


@pytest.fixture(scope="session")
def built_world(tmp_path_factory):
    return build_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(built_world, tmp_path, monkeypatch):
    """A copy of the world, which is the working folder."""
    shutil.copytree(built_world, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    return tmp_path / "world"
