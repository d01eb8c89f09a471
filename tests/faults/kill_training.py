"""kill -9 a training at random moments, half of them inside a save, and look at what is left.

    python -m tests.faults.kill_training --kills 50 --seed 0 --folder DIR

Each time, every file must be whole, the state no older than one save, and the run must go on; at
the end the weights must be those of a run that was never killed. TMPDIR is put on another file
system (/dev/shm), as on clusters. Prints one line of JSON; exit code 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

KEYS = {
    "model.backbone": "tiny",
    "model.context": "sca",
    "model.context_options.hidden": "64",
    "training.batch_size": "2",
    "training.ema": "0.9",
    "training.checkpoint_minutes": "0",  # a save after every step
    "training.validate_every": "3",
    "machine.device": "cpu",
    "machine.workers": "0",
}
BEYOND = 8  # steps that a training may do after those that are waited for
SAVING = 12  # MiB of ballast in the state: a save takes about as long as a step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="an empty folder; a temporary one")
    options = parser.parse_args()
    place = options.folder or Path(tempfile.mkdtemp(dir=Path.cwd()))
    if Path("/dev/shm").is_dir():
        os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"
    # imported before the fork: the trainings start at once
    import torch

    torch.set_num_threads(1)
    import scaseg.training  # noqa: F401
    from tests.scenes import write_scenes

    write_scenes(place / "data", 16, size=(32, 40))
    result = hunt(place, options.kills, options.seed, options.epochs)
    print(json.dumps(result))
    sys.exit(1 if result["torn"] or result["lost"] or not result["same_weights"] else 0)


def hunt(place: Path, kills: int, seed: int, epochs: int) -> dict[str, object]:
    """Kill and look, until there were enough kills; then let the run end."""
    choose = random.Random(seed)
    found: dict[str, object] = {"kills": 0, "in_a_save": 0, "torn": [], "lost": 0, "most_redone": 0}
    out = place / "killed"
    known = 0  # the newest step that was once saved
    while found["kills"] < kills:
        in_save, wanted = choose.random() < 0.5, choose.randint(0, 12)
        process, pipe = start(place, out, epochs, most=wanted + BEYOND)
        announced = wait_for_a_moment(process, pipe, out, choose, wanted, in_save=in_save)
        if announced is None:
            raise SystemExit("the run ended before enough kills; use more --epochs")
        was_saving = is_saving(out)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        announced = max([announced, *read_steps(pipe)])
        os.close(pipe)
        found["kills"] += 1  # type: ignore[operator]
        found["in_a_save"] += was_saving  # type: ignore[operator]
        found["torn"] += torn_files(out)  # type: ignore[operator]
        saved = saved_step(out)
        if saved < known:
            found["lost"] += 1  # type: ignore[operator]
        found["most_redone"] = max(found["most_redone"], announced - saved)  # type: ignore[call-overload]
        known = max(known, saved)
    if found["most_redone"] > 1:  # type: ignore[operator]
        found["lost"] += 1  # type: ignore[operator]
    found["step"] = known
    for folder in (out, place / "whole"):
        process, pipe = start(place, folder, epochs)
        while select.select([pipe], [], [], 600)[0] and os.read(pipe, 4096):
            pass
        os.close(pipe)
        os.waitpid(process, 0)
    found["same_weights"] = weights_of(out) == weights_of(place / "whole")
    return found


def start(place: Path, out: Path, epochs: int, most: int | None = None) -> tuple[int, int]:
    """Fork a training that announces every step; its process and the pipe to read them from.

    most: steps after which it waits for its end, however late a busy machine lets us bring it.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    code = 1
    try:
        import torch

        from scaseg.config.recipe import load_recipe
        from scaseg.training.module import SegmentationModule
        from scaseg.training.run import train

        done = []

        def announce(self: SegmentationModule, *_: object) -> None:
            os.write(writing, struct.pack("<i", self.global_step))
            done.append(self.global_step)
            while len(done) == most:
                time.sleep(1)

        save = SegmentationModule.on_save_checkpoint

        def heavier(self: SegmentationModule, checkpoint: dict[str, object]) -> None:
            save(self, checkpoint)
            checkpoint["ballast"] = torch.arange(SAVING * 2**17)

        SegmentationModule.on_train_batch_end = announce  # type: ignore[assignment, method-assign]
        SegmentationModule.on_save_checkpoint = heavier  # type: ignore[method-assign]
        keys = {**KEYS, "data.root": str(place / "data"), "training.epochs": str(epochs)}
        resume = (out / "recipe.yaml").is_file()
        train(load_recipe(None, keys), out, resume=resume, quiet=True)
        code = 0
    except BaseException as fault:
        print(type(fault).__name__, fault, file=sys.stderr)
    os._exit(code)


def wait_for_a_moment(
    process: int, pipe: int, out: Path, choose: random.Random, wanted: int, *, in_save: bool
) -> int | None:
    """Let steps pass, then wait for a save or for a random time; the last step announced."""
    step, announced = 0, 0
    while announced < wanted:
        if not select.select([pipe], [], [], 600)[0]:
            raise SystemExit("no step in ten minutes")
        steps = read_steps(pipe)
        if not steps:
            os.waitpid(process, 0)
            return None
        announced, step = announced + len(steps), steps[-1]
    if not in_save:
        time.sleep(choose.uniform(0, 0.4))
    else:
        limit = time.monotonic() + 20
        while not is_saving(out) and time.monotonic() < limit:
            pass
        time.sleep(choose.uniform(0, 0.02))
    while select.select([pipe], [], [], 0)[0]:
        steps = read_steps(pipe)
        if not steps:
            break
        step = steps[-1]
    return step


def read_steps(pipe: int) -> list[int]:
    data = os.read(pipe, 4096)
    return [number for (number,) in struct.iter_unpack("<i", data[: len(data) // 4 * 4])]


def is_saving(out: Path) -> bool:
    return any((out / "checkpoints").glob(".scaseg-*"))


def torn_files(out: Path) -> list[str]:
    """Whatever cannot be read of what a run has written."""
    from scaseg import load_model
    from scaseg.config.recipe import load_recipe
    from scaseg.io.table import read_rows
    from scaseg.training.checkpoint_io import read_state

    readers = {
        "checkpoints/last.safetensors": read_state,
        "checkpoints/previous.safetensors": read_state,
        "recipe.yaml": load_recipe,
        "environment.json": lambda path: json.loads(path.read_text()),
        "metrics.csv": lambda path: [float(row["loss"]) for row in read_rows(path)],
        "checkpoints/best/config.json": lambda path: load_model(path.parent),
        "checkpoints/best/model.safetensors": lambda path: None,
    }
    torn = []
    for name, read in readers.items():
        if (out / name).exists():
            try:
                read(out / name)
            except Exception as fault:
                torn.append(f"{name}: {fault}")
    return torn


def saved_step(out: Path) -> int:
    from scaseg.training.checkpoint_io import read_state

    path = out / "checkpoints" / "last.safetensors"
    return int(read_state(path)["global_step"]) if path.is_file() else 0


def weights_of(out: Path) -> str:
    import hashlib

    from safetensors.torch import load_file

    state = load_file(out / "model" / "model.safetensors")
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + state[name].numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
