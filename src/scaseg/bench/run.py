"""Time selective context against the alternatives, side by side in one run."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from scaseg.bench.contenders import Setting, blocks, contexts, operators, steps
from scaseg.bench.measure import Contender, Measurement, measure
from scaseg.comparison.jobs import check_variants
from scaseg.errors import UserError, one_line
from scaseg.io.atomic import write_text
from scaseg.io.table import write_rows
from scaseg.system import autocast, available_memory, choose_device, in_words

# what is compared, what others are compared with, what a size is, how the second time is called
KINDS: dict[str, tuple[Callable[[int, Setting], Iterator[Contender]], str, str, str]] = {
    "operator": (operators, "linear", "n", "fwd + bwd"),
    "block": (blocks, "sca", "n", "fwd + bwd"),
    "contexts": (contexts, "sca", "n", "fwd + bwd"),
    "step": (steps, "sca", "side", "step"),
}


def run(
    what: str,
    sizes: Sequence[int],
    *,
    chosen: Sequence[str] = (),
    batch: int,
    channels: int,
    hidden: int | None,
    head: str,
    precision: str,
    compiled: bool,
    repeats: int,
    limit: float,
    device: str,
    as_json: bool,
    out: Path | None,
) -> None:
    """Measure every contender at every size; print a table, or JSON, and write it to a folder.

    chosen: these contexts instead of all; the others are compared with the first.
    A contender whose both passes took more than `limit` seconds is left out of later sizes.
    """
    check_variants(chosen)
    place = torch.device(choose_device(device))
    autocast(place.type, precision)  # refuses what does not exist
    hidden = (64 if what == "operator" else channels) if hidden is None else hidden
    setting = Setting(batch, channels, hidden, head, precision, compiled, place, chosen)
    if what != "step":  # inputs and outputs, forward and backward: it cannot be less
        needed, free = 16 * batch * max(sizes) * channels, available_memory(place)
        if free is not None and needed > free:
            problem = f"{max(sizes)} with --channels {channels} take more than {in_words(needed)}"
            raise UserError("--sizes", f"{problem}, but {in_words(free)} are free", "give less")
    about = {
        "what": what,
        "date": date.today().isoformat(),
        "machine": machine(place.type),
        "precision": precision,
        "batch": batch,
        "channels": channels if what != "step" else f"vgg16, head {head}",
        "repeats": repeats,
    }
    make, best, size_name, both_name = KINDS[what]
    best = chosen[0] if chosen else best
    rows: list[Measurement] = []
    if not as_json:
        print(about["machine"])
        named = f"M = {channels}" if what != "step" else f"VGG16, head {head}"
        print(f"{named}, batch {batch}, precision {precision}, {about['date']}, ", end="")
        print(f"median of {repeats};\nmemory of both passes\n")
        print(_line([size_name, "context", "forward", both_name, "memory", f"{best} is faster"]))
    for size in sizes:
        found: list[Measurement] = []
        for contender in make(size, setting):
            if any(row.contender == contender.name and row.both > limit for row in rows):
                continue
            free = available_memory(place)
            try:
                if free is not None and contender.needs > free:  # a CPU's process would be killed
                    raise torch.OutOfMemoryError
                found.append(measure(contender, size, repeats, place))
            except torch.OutOfMemoryError:
                nothing = math.nan
                found.append(Measurement(contender.name, size, nothing, nothing, None, None))
            except RuntimeError as error:  # a kernel that does not count so far: the others can
                problem = one_line(str(error).partition("\n")[0])
                print(f"left out: {contender.name} at {size}: {problem}", file=sys.stderr)
            if place.type == "cuda":
                torch.cuda.empty_cache()
            if (
                out is not None and rows + found
            ):  # a run that is cut off loses nothing that it has measured
                out.mkdir(parents=True, exist_ok=True)
                write_rows(out / f"{what}.csv", [about | asdict(row) for row in rows + found])
        rows += found
        if not as_json:
            print("\n".join(_line(cells) for cells in _table(found, best)) + "\n", flush=True)
    growth = _growth([row for row in rows if row.contender == best])
    if as_json:
        print(json.dumps(about | {"rows": [asdict(row) for row in rows]}))
    elif growth:
        print(growth)
    if out is not None:
        _write(out, about, rows, best, size_name, both_name, growth)
        if not as_json:
            print(f"written to {out}")


def machine(device: str) -> str:
    """The hardware and the versions that times depend on."""
    cpu = f"{platform.machine()}, {torch.get_num_threads()} threads"
    name = torch.cuda.get_device_name() if device == "cuda" else cpu
    try:
        triton = f", triton {version('triton')}"
    except PackageNotFoundError:
        triton = ""
    return f"{name}, torch {torch.__version__}{triton}"


def _table(rows: list[Measurement], best: str) -> Iterator[list[str]]:
    """Rows of a table: size, contender, two times, memory, how much faster the best is."""
    ours = next((row for row in rows if row.contender == best), None)  # None: left out
    for row in rows:
        memory = "n/a" if row.both_memory is None else in_words(row.both_memory)
        times = [row.forward, row.both]
        cells = [
            "no memory" if math.isnan(one) else f"{1000 * one:.{1 if one > 0.1 else 2}f} ms"
            for one in times
        ]
        faster = ""
        if ours is not None and row is not ours and not math.isnan(row.forward + ours.forward):
            faster = f"{row.forward / ours.forward:.1f} x / {row.both / ours.both:.1f} x"
        yield [str(row.size), row.contender, *cells, memory, faster]


def _line(cells: list[str]) -> str:
    size, name, forward, both, memory, faster = cells
    return f"{size:>7} {name:<22} {forward:>10} {both:>10} {memory:>9} {faster:>16}".rstrip()


def _growth(rows: list[Measurement]) -> str:
    """Say how time and memory of the best grow from the second largest size to the largest."""
    rows = [row for row in sorted(rows, key=lambda row: row.size) if not math.isnan(row.both)]
    if len(rows) < 2:
        return ""
    before, last = rows[-2:]

    def power(one: float | None, other: float | None) -> str:
        if not one or not other:
            return "n/a"
        return f"size^{math.log(other / one) / math.log(last.size / before.size):.2f}"

    time = power(before.both, last.both)
    memory = power(before.both_memory, last.both_memory)
    between = f"{before.size} to {last.size}"
    return f"{last.contender}, {between}: time grows like {time}, memory like {memory}"


def _write(
    out: Path,
    about: dict[str, object],
    rows: list[Measurement],
    best: str,
    size_name: str,
    both_name: str,
    growth: str,
) -> None:
    """Write the table as CSV and Markdown, and a plot."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{about['what']}"
    write_rows(out / f"{name}.csv", [about | asdict(row) for row in rows])
    head = [size_name, "context", "forward", both_name, "memory", f"{best} is faster"]
    lines = [f"{about['machine']}; {about['date']}; precision {about['precision']}, "]
    lines[0] += f"batch {about['batch']}, channels {about['channels']}\n"
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for size in dict.fromkeys(row.size for row in rows):
        for cells in _table([row for row in rows if row.size == size], best):
            lines.append(f"| {' | '.join(cells)} |")
    write_text(out / f"{name}.md", "\n".join([*lines, "", growth, ""]))

    from scaseg.plots.timings import save_timings

    save_timings(out / f"{name}.png", rows, title=str(about["machine"]), size_name=size_name)
