"""What large work would take and cost, computed from measured figures and stated assumptions.

    python docs/results/making/scale.py --gpu-hour 2.5 --cores 24

prints the tables of docs/scale.md for other assumptions.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from making.marks import Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import read_rows

GPUS = (1, 8, 64)
TRAINING_IMAGES = 118_287  # of COCO Stuff 164k
PHOTOGRAPHS = 100_000_000
MEGA = 1e6


def assumed(value: float, meaning: str) -> float:
    """A field with a default, and what it means."""
    found: float = field(default=value, metadata={"meaning": meaning})
    return found


@dataclass(frozen=True)
class Assumptions:
    """What was not measured; each is an option of this script."""

    gpu_hour: float = assumed(
        4.0, "USD an hour for a GPU like the H200 and its share of the machine"
    )
    cores: float = assumed(16.0, "cores beside each GPU")
    per_machine: float = assumed(8.0, "GPUs of a machine")
    network: float = assumed(25.0, "Gbit/s of a machine, to others and to the store")
    latency: float = assumed(0.03, "seconds until the first byte of an object comes")
    million_gets: float = assumed(0.4, "USD for a million requests to the object store")
    files: float = assumed(3000.0, "small files a second that a shared file system creates")
    epochs: float = assumed(20.0, "epochs of training")
    batch: float = assumed(16.0, "images a step, on each GPU")
    side: float = assumed(640.0, "pixels of a side of a training image")
    width: float = assumed(640.0, "pixels, of a photograph to predict")
    height: float = assumed(480.0, "pixels, of a photograph to predict")


class Measured:
    """The figures in docs/timings."""

    def __init__(self, root: Path) -> None:
        folder = root / "docs" / "timings"
        steps = read_rows(folder / "h200_step_16.csv")
        step = next(row for row in steps if row["contender"] == "sca")
        self.step_pixel = float(step["both"]) / (int(step["batch"]) * int(step["size"]) ** 2)
        cpu = {row["what"]: float(row["value"]) for row in read_rows(folder / "scale_cpu.csv")}
        pixels = 640 * 480
        self.decode, self.augment = cpu["decode a photograph"] / pixels, cpu["augment for training"]
        self.write, self.pack = cpu["write a label map"] / pixels, cpu["pack a label map"]
        self.fetch, self.bytes = cpu["fetch from an object store"], cpu["photograph"] / pixels
        self.weights = cpu["weights"]
        gpu = {row["what"]: float(row["value"]) for row in read_rows(folder / "scale_gpu.csv")}
        self.network_pixels = gpu["predict: the network alone"] * 320 * 240
        self.whole_pixels = gpu["predict: with reading and writing"] * 320 * 240


Rates = dict[str, float]  # images/s that each part could do, for all GPUs together


def training_rates(measured: Measured, given: Assumptions, gpus: int) -> Rates:
    """Images a second that the network, the loaders and the exchange of gradients allow."""
    pixels = given.side**2
    seconds = measured.step_pixel * pixels * given.batch  # of a step
    rates = {
        "network": gpus * given.batch / seconds,
        "loaders": gpus * given.cores / (measured.decode * 640 * 480 + measured.augment),
    }
    machines = gpus / given.per_machine
    if machines > 1:  # a ring: each machine sends and gets the gradients (float32) almost twice
        sent = 2 * (machines - 1) / machines * 4 * measured.weights
        rates["gradients"] = gpus * given.batch / (sent / (given.network / 8 * 1e9))
    return rates


def prediction_rates(measured: Measured, given: Assumptions, gpus: int, packed: bool) -> Rates:
    """Photographs a second that each part allows, from an object store into files or parts."""
    pixels = given.width * given.height
    core = measured.decode * pixels + measured.fetch + measured.write * pixels
    core += measured.pack if packed else 0.0
    machines = max(1.0, gpus / given.per_machine)
    rates = {
        "network": gpus * measured.network_pixels / pixels,
        "as measured, with the rest": gpus * measured.whole_pixels / pixels,
        "cores": gpus * given.cores / core,
        "bytes from the store": machines * given.network / 8 * 1e9 / (measured.bytes * pixels),
        "requests (8 threads)": gpus * 8 / given.latency,
    }
    if not packed:
        rates["files created"] = given.files
    return rates


def table(rates: dict[int, Rates], images: float, given: Assumptions, fee: float) -> str:
    """Rows of what each part allows, then time and cost."""
    parts = list(dict.fromkeys(part for found in rates.values() for part in found))
    rows = [
        [f"{part}, images/s", *(f"{found[part]:,.0f}" if part in found else "-" for found in cells)]
        for part in parts
        if (cells := list(rates.values()))
    ]
    slowest = {gpus: min(found, key=found.__getitem__) for gpus, found in rates.items()}
    hours = {gpus: images / rates[gpus][part] / 3600 for gpus, part in slowest.items()}
    rows.append(["**slowest**", *(f"**{part}**" for part in slowest.values())])
    rows.append(["**time**", *(f"**{_time(one)}**" for one in hours.values())])
    costs = [one * gpus * given.gpu_hour + fee for gpus, one in hours.items()]
    rows.append(["**cost**", *(f"**{cost:,.0f} USD**" for cost in costs)])
    heads = ["", *(f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in rates)]
    return markdown_table(heads, rows)


def _time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def training_table(root: Path, given: Assumptions) -> str:
    """COCO Stuff 164k."""
    measured = Measured(root)
    rates = {gpus: training_rates(measured, given, gpus) for gpus in GPUS}
    return table(rates, TRAINING_IMAGES * given.epochs, given, 0.0)


def prediction_table(root: Path, given: Assumptions, packed: bool) -> str:
    """A hundred million photographs."""
    measured = Measured(root)
    rates = {gpus: prediction_rates(measured, given, gpus, packed) for gpus in GPUS}
    return table(rates, PHOTOGRAPHS, given, PHOTOGRAPHS / MEGA * given.million_gets)


@maker("scale-training")
def _training(page: Page) -> str:
    return training_table(page.root, Assumptions())


@maker("scale-prediction")
def _prediction(page: Page, kind: str) -> str:
    return prediction_table(page.root, Assumptions(), packed=kind == "packed")


@maker("scale-assumptions")
def _assumptions(page: Page) -> str:
    rows = [
        [f"`--{one.name.replace('_', '-')}`", one.metadata["meaning"], f"{one.default:g}"]
        for one in fields(Assumptions)
    ]
    return markdown_table(["option", "assumption", "value"], rows)


@maker("scale-measured")
def _measured(page: Page) -> str:
    folder, rows = page.root / "docs" / "timings", []
    for name in ("scale_cpu.csv", "scale_network.csv", "scale_gpu.csv"):
        for row in read_rows(folder / name):
            rows.append([row["what"], f"{row['value']} {row['unit']}", row["machine"]])
    step = next(row for row in read_rows(folder / "h200_step_16.csv") if row["contender"] == "sca")
    size = f"{step['batch']} images of {step['size']}², {step['precision']}, {step['channels']}"
    rows.append([f"a training step, {size}", f"{float(step['both']):.4g} s", step["machine"]])
    return markdown_table(["what", "value", "where"], rows)


def main() -> None:
    """Print the tables for other assumptions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for one in fields(Assumptions):
        option = f"--{one.name.replace('_', '-')}"
        parser.add_argument(option, type=float, default=one.default, help=one.metadata["meaning"])
    given, root = Assumptions(**vars(parser.parse_args())), Path(__file__).parents[3]
    print(f"Training\n\n{training_table(root, given)}")
    for packed in (False, True):
        kind = "into Parquet files" if packed else "into files"
        print(f"\nPredicting {kind}\n\n{prediction_table(root, given, packed)}")


if __name__ == "__main__":
    main()
