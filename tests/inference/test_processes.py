"""Processes that read and write beside a GPU give what threads give; here beside a CPU."""

import gc
import os
from pathlib import Path, PurePath

import numpy as np
import pytest
import torch
from PIL import Image

from scaseg.config.model import read_config
from scaseg.data.decode.bands import read_pixels
from scaseg.errors import UserError, WorkError
from scaseg.inference.outputs import Outputs
from scaseg.inference.pipeline import Pipeline, Settings
from scaseg.inference.processes import BLOCK, PAGE, SHARED, Arena, Processes
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile
from tests.inference.models import picture

COUNT = 21


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Images of several sizes, the last of them large; one of them torn."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(COUNT):
        size = (300, 400) if number == COUNT - 1 else (30 + number % 3, 41)
        Image.fromarray(picture(*size, seed=number)).save(folder / f"{number:02}.jpg")
    (folder / "07.jpg").write_bytes((folder / "07.jpg").read_bytes()[:300])
    return [InputFile(path, PurePath("of", path.stem)) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def processes(model):
    started = Processes(2, read_config(Path(model)), None)
    yield started
    started.close()


def test_memory_is_taken_again_when_its_last_view_is_gone():
    arena = Arena(3 * PAGE)
    rooms = [arena.array((2, 100), np.uint8) for _ in range(3)]
    assert arena.array((1,), np.uint8) is None
    tensor = torch.from_numpy(rooms[0])[1]
    view = rooms[1][1, 5:].view(np.int8)
    del rooms[:2]
    gc.collect()
    assert arena.array((1,), np.uint8) is None
    place = arena.place(view)[0]
    del view
    again = arena.array((1,), np.uint8)
    assert arena.place(again)[0] == place // PAGE * PAGE
    assert arena.array((1,), np.uint8) is None
    del tensor
    assert arena.array((1,), np.uint8) is not None
    assert arena.place(np.zeros(3)) is None


def test_reading(processes, files):
    found = processes.read(files)  # nothing is known of their size
    found = [*processes.read(files[:10]), *processes.read(files[10:])]
    assert str(found[7]).startswith(f"{files[7].path}: cannot be read")
    assert isinstance(found[7], UserError)
    for file, pixels in zip(files, found, strict=True):
        if file is not files[7]:
            assert processes.arena.place(pixels) is not None
            np.testing.assert_array_equal(pixels, read_pixels(file.path, None))


def test_large_images_are_read_one_by_one_and_leave_room_for_others(model):
    processes = Processes(1, read_config(Path(model)), None)
    assert processes.block() == BLOCK
    assert processes.is_room(100)
    processes._recent.append(960 * 1280 * 3)
    assert processes.block() == 1
    ahead = next(count for count in range(1000) if not processes.is_room(count))
    assert ahead * 960 * 1280 * 3 < SHARED / 3
    processes.close()


def pipelines(model, processes, **settings):
    for shared in (None, processes):
        pipeline = Pipeline(Settings(Path(model), "nowhere", device="cpu", **settings))
        pipeline._processes = shared
        yield pipeline


def test_results_are_those_of_threads(model, processes, files, tmp_path):
    settings = {"overlay": True, "json": True, "confidence": True, "batch_size": 4}
    results = []
    for pipeline in pipelines(model, processes, **settings):
        out, bad = tmp_path / str(len(results)), []
        count = {"count": COUNT, "on_bad": lambda file, error, bad=bad: bad.append(file)}
        pipeline.run(files, pipeline.settings.outputs(out), **count)
        assert bad == [files[7]]
        results.append({path.name: path.read_bytes() for path in (out / "of").iterdir()})
    assert len(results[0]) == 4 * (COUNT - 1)
    assert results[0] == results[1]


def test_a_disk_that_does_not_take_them(processes, tmp_path):
    (tmp_path / "out").write_text("a file")
    labels = processes.arena.array((4, 4), np.uint8)
    labels[:] = 0
    found = Segmentation(labels, ("sky",), ((1, 2, 3),))
    file = InputFile(tmp_path / "a.jpg", PurePath("a"))
    with pytest.raises(NotADirectoryError):
        processes.write(Outputs(tmp_path / "out"), [(file, found)])


def test_a_process_that_is_killed(model, files):
    processes = Processes(1, read_config(Path(model)), None)
    child = processes._idle.get()
    processes._idle.put(child)
    assert os.getsid(child.pid) != os.getsid(0)  # Ctrl-C does not reach it
    child.kill()
    child.wait()
    with pytest.raises(WorkError, match="which reads and writes files, has ended"):
        processes.read(files[:1])
    processes.close()
