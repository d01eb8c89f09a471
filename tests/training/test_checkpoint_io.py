"""Training states on disk: given back as they were, whole or not at all, and nothing executed."""

import json
import math
import os
import pickle
import stat

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from scaseg.io.tensors import DamagedError, read_tensors, write_tensors
from scaseg.training.checkpoint_io import PREVIOUS, StateFiles, has_state, read_state, write_state


def state(value=1.0):
    shared = torch.arange(6.0).view(2, 3)
    return {
        "epoch": 3,
        "global_step": 7,
        "state_dict": {"w": torch.full((2, 2), value), "half": torch.ones(3, dtype=torch.bfloat16)},
        "optimizer_states": [{"state": {0: {"momentum": shared}, 1: {"momentum": shared[0]}}}],
        "lr_schedulers": [{"rates": (0.1, 0.01), "step": 7}],
        "loops": {"best": -math.inf, "name": "é", "none": None, "flag": True, "fit_loop": {}},
        "callbacks": {},
        "scalar": torch.tensor(2.5),
        "nothing": torch.zeros(0, 4),
        "strided": torch.arange(8)[::2],
    }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and all(map(same, one, other))
    return one == other and type(one) is type(other)


def test_a_state_comes_back_as_it_was(tmp_path):
    path = tmp_path / "last.safetensors"
    write_state(state(), path)
    assert same(read_state(path), state())
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.safetensors"]
    own = tmp_path / "file"
    own.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(own.stat().st_mode)


def test_the_previous_state_stays(tmp_path):
    path = tmp_path / "last.safetensors"
    for value in (1.0, 2.0, 3.0):
        write_state(state(value), path)
    assert same(read_state(path), state(3.0))
    assert same(read_state(tmp_path / PREVIOUS), state(2.0))


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "gone", "text"])
def test_a_damaged_state_is_noticed_and_the_previous_one_read(tmp_path, damage):
    path = tmp_path / "last.safetensors"
    write_state(state(1.0), path)
    write_state(state(2.0), path)
    whole = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        whole[-1] ^= 1
        path.write_bytes(
            {"cut": whole[:-9], "bit": whole, "empty": b"", "text": b"hello" * 99}[damage]
        )
    with pytest.raises(DamagedError):
        read_state(path)
    assert has_state(path)
    files = StateFiles()
    said = files.read(path)
    assert said[0].endswith("resuming from previous.safetensors")
    assert same(files.load_checkpoint(path), state(1.0))
    (tmp_path / PREVIOUS).unlink()
    with pytest.raises(ValueError, match=r"no whole previous\.safetensors; start again"):
        StateFiles().read(path)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "last.safetensors"
    write_tensors(path, {"w": torch.arange(4.0), "b": torch.ones(1)}, {"note": "kept"})
    whole = path.read_bytes()
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        try:
            tensors, notes = read_tensors(path, signed=True)
        except DamagedError:
            continue
        # the header may be spelled in several ways; what it says must be the same
        assert notes == {"note": "kept"}, place
        assert torch.equal(tensors["w"], torch.arange(4.0)), place


def test_nothing_of_a_file_is_executed(tmp_path):
    """A pickle that would write a file, under the name of a state, and inside its JSON."""

    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'pwned'}",)

    path = tmp_path / "last.safetensors"
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(DamagedError, match="not a safetensors file"):
        read_state(path)
    torch.save(Payload(), path)
    with pytest.raises(DamagedError, match="not a safetensors file"):
        read_state(path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "tree",
    [
        "[]",
        "{}",
        '"text"',
        "not json",
        '{"dict": 3}',
        '{"tensor": "9"}',
        '{"class": "os.system"}',
        '{"dict": [["epoch", 1]]}',
        '{"list": [' * 5000 + "]}" * 5000,
    ],
)
def test_a_foreign_tree_is_refused(tmp_path, tree):
    path = tmp_path / "last.safetensors"
    write_tensors(path, {"0": torch.ones(2)}, {"scaseg.tree": tree})
    with pytest.raises(DamagedError, match="holds no training state"):
        read_state(path)
    save_file({"0": torch.ones(2)}, path, metadata={"scaseg.tree": tree})
    with pytest.raises(DamagedError, match="checksum"):
        read_state(path)


def test_the_state_of_another_network_is_refused(tmp_path):
    path = tmp_path / "last.safetensors"
    write_state(state(), path)
    files = StateFiles()
    files.read(path)
    with pytest.raises(ValueError, match="is the state of another network"):
        files.require_weights(path, {"w": torch.ones(3)})


def test_a_state_that_cannot_be_kept_says_where(tmp_path):
    with pytest.raises(TypeError, match=r"state\.callbacks\.mine is a set"):
        write_state({**state(), "callbacks": {"mine": {1, 2}}}, tmp_path / "last.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_named(tmp_path):
    path = tmp_path / "gone" / "last.safetensors"
    with pytest.raises(OSError, match=r"gone/last.safetensors.*cannot be written"):
        write_state(state(), path)


def test_a_held_state_does_not_change(tmp_path):
    files, moving = StateFiles(), state()

    class Trainer:
        def save_checkpoint(self, path):
            files.save_checkpoint(moving, path)

    files.hold(Trainer())
    moving["state_dict"]["w"].fill_(9)
    moving["loops"]["best"] = 1
    files.write_held(tmp_path / "last.safetensors")
    assert same(read_state(tmp_path / "last.safetensors"), state())
    files.write_held(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_others_can_read_our_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    write_tensors(path, {"w": torch.ones(2)}, {"format": "pt"})
    assert torch.equal(load_file(path)["w"], torch.ones(2))
    with safe_open(path, "pt") as file:
        assert file.metadata()["format"] == "pt"
        assert len(json.dumps(file.metadata())) < 200


def told(monkeypatch):
    """What is asked of the disk, in order: ("sync", what) and ("rename", from, to)."""
    asked, sync, rename = [], os.fsync, os.replace

    def fsync(handle):
        found = os.fstat(handle)
        asked.append(("sync", "folder" if stat.S_ISDIR(found.st_mode) else found.st_ino))
        sync(handle)

    def replace(old, new):
        asked.append(("rename", os.stat(old).st_ino, os.path.basename(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return asked


def test_a_state_is_on_the_disk_before_its_name_and_the_name_after(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    write_state(state(1.0), path)
    asked = told(monkeypatch)
    write_state(state(2.0), path)
    place = asked.index(("rename", path.stat().st_ino, path.name))
    assert ("sync", path.stat().st_ino) in asked[:place]
    assert ("sync", "folder") in asked[place:]


def test_at_no_moment_there_is_no_last_state(tmp_path, monkeypatch):
    path, rename = tmp_path / "last.safetensors", os.replace
    write_state(state(1.0), path)

    def replace(old, new):
        rename(old, new)
        read_state(path)  # DamagedError where it is missing

    monkeypatch.setattr(os, "replace", replace)
    write_state(state(2.0), path)
    assert same(read_state(path), state(2.0))


def test_a_file_that_reads_back_wrong_takes_no_place(tmp_path, monkeypatch):
    """A disk that says yes and writes something else."""
    path = tmp_path / "last.safetensors"
    for value in (1.0, 2.0):
        write_state(state(value), path)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}

    def lie(tensors, file, metadata):
        save_file(tensors, file, metadata=metadata)
        whole = bytearray(file.read_bytes())
        whole[-1] ^= 1
        file.write_bytes(whole)

    monkeypatch.setattr("scaseg.io.tensors.save_file", lie)
    with pytest.raises(OSError, match=r"last\.safetensors: cannot be written"):
        write_state(state(3.0), path)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_a_damaged_state_never_takes_the_place_of_a_whole_one(tmp_path, monkeypatch):
    """Continued from previous, killed in the next save: one of the two must still be whole."""
    path, rename = tmp_path / "last.safetensors", os.replace
    for value in (1.0, 2.0):
        write_state(state(value), path)
    path.write_bytes(path.read_bytes()[:-9])
    files = StateFiles()
    files.read(path)

    def replace(old, new):
        if new == path:
            raise KeyboardInterrupt  # as a kill: nothing after it happens
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            files.save_checkpoint(state(3.0), path)
    StateFiles().read(path)  # ValueError where none is whole
