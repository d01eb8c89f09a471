"""Whole files: what is there stays until the next one is finished."""

import errno
import json
import os

import pytest

from scaseg.io.atomic import LEFTOVER, remove_leftovers, whole_file, write_json, write_text


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path):
    write_text(tmp_path / "a.txt", "old")

    def killed():
        with whole_file(tmp_path / "a.txt") as temporary:
            temporary.write_text("ne")
            assert temporary.parent == tmp_path
            raise KeyError

    with pytest.raises(KeyError):
        killed()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"höhe": [1, 2.5]}, '{\n  "höhe": [\n    1,\n    2.5\n  ]\n}\n'),
        ("\udcff.jpg", '"\\udcff.jpg"\n'),  # a name on disk that is not UTF-8
    ],
)
def test_json_is_readable_and_always_utf8(value, text, tmp_path):
    write_json(tmp_path / "a.json", value)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text
    assert json.loads(text) == value


def test_only_what_a_killed_run_left_is_removed(tmp_path):
    for name in (f"{LEFTOVER}host-1-ab.part", f"{LEFTOVER}prepare.json", "a.part"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{LEFTOVER}prepare.json", "a.part"}


@pytest.mark.parametrize("exclusive", [False, True])
def test_contents_are_on_the_disk_before_the_name_is(exclusive, tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "link", "replace"):
        real = getattr(os, name)

        def watched(*arguments, real=real, name=name):
            done.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, watched)
    write_text(tmp_path / "a.txt", "new", exclusive=exclusive)
    assert done == ["fsync", "link" if exclusive else "replace", "fsync"]


@pytest.mark.parametrize("name", ["missing/a.txt", f"{'a' * 300}.txt"])
def test_an_error_names_the_file_and_not_the_temporary_one(name, tmp_path):
    with pytest.raises(OSError, match="txt") as error:
        write_text(tmp_path / name, "text")
    assert error.value.filename == str(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "named"), [(OSError(errno.ENOSPC, "full"), True), (ConnectionResetError(), False)]
)
def test_a_full_disk_is_said_of_the_file_that_did_not_fit(error, named, tmp_path):
    """write() knows no name; what is read meanwhile, from a network, is another matter."""
    with pytest.raises(type(error)) as found, whole_file(tmp_path / "a.txt"):
        raise error
    assert found.value.filename == (str(tmp_path / "a.txt") if named else None)
