"""Processes that read images and write results beside a GPU.

Python runs one thread at a time: in one process, decoding, packing and what launches the network
take each other's turns. Pixels and labels lie in memory that all processes see and that a GPU
copies from and to by itself; messages are lines of JSON. The processes never import torch, and end
when their input does, whatever became of this one.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import subprocess
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path, PurePath
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scaseg.config.model import ModelConfig
from scaseg.data.decode.bands import read_pixels
from scaseg.errors import UserError, WorkError
from scaseg.inference.outputs import Outputs
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile

SHARED = 1 << 29  # bytes of shared memory
LARGEST = SHARED >> 4  # bytes of an image in it
PAGE = 1 << 16
RECENT = 64  # images that say how large the next ones may be
BLOCK = 4  # small files that a process reads or writes at a time
FEW_WRITERS, SMALL = 4, 1 << 20  # blocks of fewer bytes, of which so many are written at once
# glibc gives what an image took back to the system, page by page, and asks for it again: half of
# the time that a photograph of 1280 x 960 takes
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 26)}

Place = tuple[int, Sequence[int], str]  # where an array begins, its shape, its type


class Arena:
    """Memory that processes share; what no array needs any more is taken again."""

    def __init__(self, size: int = SHARED) -> None:
        self.file = os.memfd_create("scaseg")
        os.ftruncate(self.file, size)
        self._map = mmap.mmap(self.file, size)
        self._free: dict[int, list[int]] = defaultdict(list)  # where blocks begin, by their size
        self._lock, self._end, self._size = Lock(), 0, size
        self.address = np.frombuffer(self._map, np.uint8).ctypes.data

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any] | None:
        """Return an array of whatever was there; None where no room is left."""
        size = -(-math.prod(shape) * np.dtype(dtype).itemsize // PAGE) * PAGE
        with self._lock:
            if free := self._free[size]:
                start = free.pop()
            elif self._end + size <= self._size:
                start, self._end = self._end, self._end + size
            else:
                return None
        # a view of an array refers to the last array before it: not to this memoryview
        array = np.ndarray(shape, dtype, memoryview(self._map)[start : start + size])
        weakref.finalize(array, self._free[size].append, start)
        return array

    def place(self, array: NDArray[Any]) -> Place | None:
        """Say where an array lies; None: elsewhere."""
        start = array.ctypes.data - self.address
        is_here = 0 <= start < self._size and array.flags.c_contiguous
        return (start, array.shape, array.dtype.str) if is_here else None

    def pin(self) -> None:
        """Let a GPU copy from and to it by itself, where it can: else it is as any memory."""
        import torch

        library = torch.cuda.cudart()
        if int(library.cudaHostRegister(self.address, self._size, 0)):
            with suppress(RuntimeError):  # whatever is launched next would raise what was refused
                torch.zeros(1, device="cuda")
        else:  # before the system gives these addresses to others, whom CUDA would refuse
            weakref.finalize(self, library.cudaHostUnregister, self.address).atexit = False


class Processes:
    """Some processes, each of which does one thing at a time, for whichever thread asks."""

    def __init__(self, count: int, config: ModelConfig, max_pixels: int | None) -> None:
        self.arena, self.count = Arena(), count
        self._config, self._max_pixels = config, max_pixels
        self._recent = deque([PAGE], RECENT)
        self._few = Semaphore(FEW_WRITERS)
        package = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {package!r}); "
        code += f"from scaseg.inference.processes import serve; serve({self.arena.file}, {SHARED})"
        started = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self.arena.file],
                env=MALLOC | os.environ,
                start_new_session=True,  # Ctrl-C is for this process, which ends the others
            )
            for _ in range(count)
        ]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in started:
            self._idle.put(process)
        self.close = weakref.finalize(self, _end, started)

    def block(self) -> int:
        """How many images to ask for at a time: large ones one by one."""
        return min(BLOCK, max(1, (1 << 20) // max(self._recent)))

    def is_room(self, waiting: int) -> bool:
        """Whether more may be read ahead of so many images: the rest of the memory is for others.

        Batches that are computed, and labels that are written.
        """
        return waiting * max(self._recent) < SHARED // 4

    def read(self, files: Sequence[InputFile]) -> list[NDArray[Any] | UserError | None]:
        """Read images; None: one that has no room here, or is no file of this machine."""
        size, config = min(max(self._recent), LARGEST), self._config
        found: list[NDArray[Any] | UserError | None] = []
        rooms = [
            self.arena.array((size,), np.uint8)
            if isinstance(file.path, Path) and file.row is None
            else None
            for file in files
        ]
        wanted = [
            (os.fspath(file.path), self.arena.place(room))
            for file, room in zip(files, rooms, strict=True)
            if room is not None
        ]
        how = (config.bands, config.dtype, self._max_pixels)
        answers = iter(self._ask("read", wanted, how) if wanted else ())
        for room in rooms:
            answer = None if room is None else next(answers)
            if isinstance(answer, dict):
                found.append(UserError(*answer["error"]))
            elif answer is None or room is None or isinstance(answer, int):
                self._recent.append(answer or PAGE)
                found.append(None)
            else:
                shape, dtype = answer
                length = math.prod(shape) * np.dtype(dtype).itemsize
                self._recent.append(length)
                found.append(room[:length].view(dtype).reshape(shape))
        return found

    def write(
        self, outputs: Outputs, several: Sequence[tuple[InputFile, Segmentation]]
    ) -> list[tuple[InputFile, Segmentation]]:
        """Write the results of images that lie in shared memory; return the others."""
        rest, asked = [], []
        for file, found in several:
            arrays = (found.labels, found.image if outputs.overlay else None, found.confidence)
            places = [None if one is None else self.arena.place(one) for one in arrays]
            if [one is None for one in arrays] != [place is None for place in places]:
                rest.append((file, found))
            else:
                asked.append((os.fspath(file.path), os.fspath(file.name), places))
        if asked:
            wanted = (outputs.overlay, outputs.areas, outputs.confidence)
            about = several[0][1].classes, several[0][1].palette
            is_small = sum(found.labels.nbytes for _, found in several) < SMALL
            with self._few if is_small else nullcontext():
                self._ask("write", os.fspath(outputs.folder), wanted, *about, asked)
        return rest

    def _ask(self, what: str, *arguments: Any) -> Any:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([what, *arguments]).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            self._idle.put(process)
        if not answer:
            problem = f"process {process.pid}, which reads and writes files, has ended"
            raise WorkError("predicting", problem, "--skip-existing goes on from here")
        fault, found = json.loads(answer)
        if fault is not None:
            raise OSError(*fault)
        return found


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
    for process in started:
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def serve(memory: int, size: int) -> None:
    """Do what the lines of standard input say, until they end."""
    shared = mmap.mmap(memory, size)

    def array(place: Place) -> NDArray[Any]:
        start, shape, dtype = place
        return np.ndarray(shape, dtype, shared, start)

    def read(files: list[tuple[str, Place]], how: tuple[Any, ...]) -> list[Any]:
        bands, dtype, most = how
        found: list[Any] = []
        for path, place in files:
            try:
                pixels = read_pixels(Path(path), bands, dtype, max_pixels=most)
            except UserError as error:
                found.append({"error": error.args})
                continue
            room = array(place)
            if pixels.nbytes > room.size:
                found.append(pixels.nbytes)
                continue
            room[: pixels.nbytes] = pixels.reshape(-1).view(np.uint8)
            found.append((pixels.shape, pixels.dtype.str))
        return found

    def write(
        folder: str,
        wanted: tuple[bool, bool, bool],
        classes: list[str],
        palette: list[tuple[int, int, int]],
        several: list[tuple[str, str, list[Place | None]]],
    ) -> None:
        overlay, areas, sure = wanted
        outputs = Outputs(Path(folder), overlay, areas=areas, confidence=sure)
        colors = tuple((red, green, blue) for red, green, blue in palette)
        for path, name, places in several:
            labels, image, confidence = (None if one is None else array(one) for one in places)
            assert labels is not None
            found = Segmentation(labels, tuple(classes), colors, None, image, confidence)
            outputs.write(InputFile(path, PurePath(name)), found)

    known: dict[str, Callable[..., Any]] = {"read": read, "write": write}
    for line in sys.stdin.buffer:
        what, *arguments = json.loads(line)
        try:
            answer: Any = (None, known[what](*arguments))
        except OSError as error:
            answer = ((error.errno, error.strerror or str(error), error.filename), None)
        try:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the other process was killed
            os._exit(1)
