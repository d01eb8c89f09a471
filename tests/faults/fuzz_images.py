"""Damage sound image and label files in every way, and see that the loaders only ever refuse.

    python tests/faults/fuzz_images.py --cases 100000 --seed 0 --workers 2

Each case is a function of (seed, case): `--only CASE` repeats one, `--keep FILE` writes it. A case
passes where the loaders return an array or raise a ValueError of one line that begins with the
file's name, within 2 s and 1 GiB. A process that dies of a signal, or that does not answer, is a
finding; the next process goes on behind it.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scaseg.data.decode.image import image_size, read_image, read_labels
from scaseg.data.decode.matlab import read_label_map, read_names
from tests.faults.image_seeds import png_chunk, seeds

SECONDS, GIB = 2.0, 1 << 30
STUCK, SILENT = 20.0, 600.0  # seconds of the processor, and of the clock, that end a process
# Time and memory grow with the pixels that a file may have: 250 million, the usual limit, take
# more than 1 GiB however they are packed. What a damaged header can ask for is bounded by this.
MAX_PIXELS = 16_000_000

NUMBERS = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 64, 127, 128, 254, 255, 256, 257, 511, 512, 1023]
NUMBERS += [4095, 4096, 16383, 16384, 32767, 32768, 65534, 65535, 65536, 1 << 20, (1 << 24) - 1]
NUMBERS += [1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]
WORDS = [b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xdb"]
WORDS += [b"\xff\xdd\0\4", b"\xff\xe1", b"\xff\xee\0\x0eAdobe", b"Exif\0\0", b"MPF\0", b"\xff\xdc"]
WORDS += [b"\xff\xc3", b"\xff\xc9", b"\xff\xca", b"\xff\xcc"]
WORDS += [b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"iCCP", b"zTXt", b"tEXt", b"iTXt", b"eXIf"]
WORDS += [b"acTL", b"fcTL", b"fdAT", b"gAMA", b"cHRM", b"CgBI", b"Raw profile type exif\0"]
WORDS += [b"II*\0", b"MM\0*", b"II+\0", b"\0\1\3\0", b"\1\1\3\0", b"\3\1\3\0", b"\x12\1\3\0"]
WORDS += [b"\x42\1\3\0", b"\x44\1\4\0", b"\x69\x87\4\0", b"\x11\1\4\0", b"\x16\1\3\0"]
WORDS += [b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP", b"EXIF", b"XMP "]
WORDS += [b"BM", b"\0\0", b"\0\1", b"\0\2\xff\xff", b"MI\0\1", b"names", b"S"]


def case_bytes(files, seed, case):
    """Return the name of the file that was damaged, and what became of it."""
    rng = random.Random(f"{seed}:{case}")
    names = sorted(files)
    name = names[case % len(names)]
    data = bytearray(files[name])
    if name.startswith("png") and rng.random() < 0.25:
        data = bytearray(repacked(rng, bytes(data)))
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5, 8])):
        data = damaged(rng, data, files[rng.choice(names)])
    if name.startswith("png") and rng.random() < 0.7:
        data = bytearray(with_checksums(bytes(data)))
    return name, bytes(data)


def damaged(rng, data, other):
    """Apply one kind of damage; half of the places lie within the first 200 bytes."""
    end = len(data)
    if not end:
        return bytearray(other[: rng.randrange(40)])
    at = rng.randrange(min(end, 200)) if rng.random() < 0.5 else rng.randrange(end)
    length = min(end - at, rng.choice([1, 2, 4, 8, 12, 16, 64, 200]))
    kind = rng.randrange(11)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at] = rng.randrange(256)
    elif kind == 2:
        data = data[:at]
    elif kind == 3:  # something of another file
        start = rng.randrange(max(1, len(other) - length))
        data[at : at + length] = other[start : start + length]
    elif kind == 4:  # twice, or often
        data[at:at] = data[at : at + length] * rng.choice([1, 1, 1, 2, 10, 300])
    elif kind == 5:
        del data[at : at + length]
    elif kind in (6, 7):  # a length, a size, a count
        form = rng.choice(["<H", ">H", "<I", ">I", "<I", ">I"])
        number = rng.choice(NUMBERS) & (0xFFFF if form[1] == "H" else 0xFFFFFFFF)
        width = struct.calcsize(form)
        data[at : at + width] = struct.pack(form, number)
    elif kind == 8:
        word = rng.choice(WORDS)
        data[at : at + len(word) * rng.randrange(2)] = word
    elif kind == 9:
        data[at : at + length] = rng.randbytes(length)
    else:
        data += rng.randbytes(rng.randrange(100)) if rng.random() < 0.5 else other
    return data


def repacked(rng, data):
    """Damage the rows of a PNG under a sound compression."""
    out, at = [data[:8]], 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        if kind == b"IDAT":
            rows = bytearray(zlib.decompress(body)) if out[-1] != kind else bytearray(body)
            for _ in range(rng.randrange(1, 6)):
                rows[rng.randrange(len(rows))] = rng.randrange(256)
            if rng.random() < 0.3:
                rows = rows[: rng.randrange(len(rows))]
            body = zlib.compress(bytes(rows))
        out.append(png_chunk(kind, body))
        at += 12 + length
    return b"".join(out)


def with_checksums(data):
    """Mend the checksums of a PNG, so that the damage gets as far as the decoder."""
    out, at = [data[:8]], 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            break
        out.append(png_chunk(kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return b"".join([*out, data[at:]])


LOADERS = {
    "read_image": lambda path: read_image(path, max_pixels=MAX_PIXELS),
    "image_size": lambda path: image_size(path, upright=True, max_pixels=MAX_PIXELS),
    "read_labels": lambda path: read_labels(path, max_pixels=MAX_PIXELS),
}
MAT_LOADERS = {
    "read_label_map": lambda path: read_label_map(path, "S", max_pixels=MAX_PIXELS),
    "read_names": read_names,
}


def examine(name, data, path):
    """Let the loaders read a file: what each did, what is wrong with that, seconds and bytes."""
    path.write_bytes(data)
    outcomes, findings = [], []
    clear_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    loaders = MAT_LOADERS if name.startswith("mat") else LOADERS
    for loader, read in loaders.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read(path)
            outcomes.append("read")
        except ValueError as fault:
            outcomes.append("refused")
            said = str(fault)
            if "\n" in said or not said.startswith(f"{path}: ") or not said.isprintable():
                findings.append(f"{loader}: a line that is none of ours: {said!r}")
            if type(fault.__cause__) is MemoryError:
                findings.append(f"{loader}: more than {GIB} bytes asked for")
        except BaseException as fault:
            if isinstance(fault, KeyboardInterrupt):
                raise
            findings.append(f"{loader}: {type(fault).__name__}: {fault}")
    seconds = time.perf_counter() - began
    taken = memory("VmHWM") - before
    if seconds > SECONDS:
        # once more, by the processor's time: others may be at work on this machine
        began = time.process_time()
        for read in loaders.values():
            with suppress(ValueError):
                read(path)
        seconds = time.process_time() - began
        if seconds > SECONDS:
            findings.append(f"{seconds:.1f} s")
    if taken > GIB:
        findings.append(f"{taken} bytes")
    return outcomes, findings, seconds, taken


def memory(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def clear_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def work(seed, first, last, step, state, results):
    """Examine every step-th case; state tells the parent where we are."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders in C complain there
    limit = memory("VmSize") + GIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = seeds()
    tally = {"cases": 0, "read": 0, "refused": 0, "slowest": (0.0, 0), "largest": (0, 0)}
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as where:
        path = Path(where) / "file.bin"
        for case in range(first, last, step):
            state[0] = case
            name, data = case_bytes(files, seed, case)
            outcomes, findings, seconds, taken = examine(name, data, path)
            for finding in findings:
                results.put(("finding", case, f"{name}: {finding}"))
            tally["cases"] += 1
            for outcome in outcomes:
                tally[outcome] += 1
            tally["slowest"] = max(tally["slowest"], (seconds, case))
            tally["largest"] = max(tally["largest"], (taken, case))
            if tally["cases"] % 500 == 0:
                results.put(("tally", step, dict(tally)))
                tally |= {"cases": 0, "read": 0, "refused": 0}
    results.put(("tally", step, dict(tally)))
    results.close()
    results.join_thread()
    state[0] = -1


def processor_time(pid):
    """The seconds that a process has had: the clock's say little where others are at work."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(cases, seed, workers):
    """Run all cases; return the tally and the findings."""
    context = multiprocessing.get_context("fork")
    total = {"cases": 0, "read": 0, "refused": 0, "slowest": (0.0, 0), "largest": (0, 0)}
    findings, began, shown = [], time.time(), 0.0
    results = context.Queue()

    def start(first):
        state = context.Array("q", [first], lock=False)
        process = context.Process(target=work, args=(seed, first, cases, workers, state, results))
        process.start()
        return process, state

    def gather():
        while not results.empty():
            what, _, value = item = results.get()
            if what == "finding":
                findings.append((item[1], value))
                print(f"case {item[1]}: {value}", flush=True)
                continue
            for key in ("cases", "read", "refused"):
                total[key] += value[key]
            for key in ("slowest", "largest"):
                total[key] = max(total[key], value[key])

    seen = defaultdict(lambda: (-2, 0.0, 0.0))  # of each process: its case, since when
    running = [start(first) for first in range(workers)]
    while running:
        time.sleep(0.2)
        gather()
        for index, (process, state) in enumerate(running):
            case = int(state[0])
            if case != seen[process.pid][0]:
                seen[process.pid] = (case, time.time(), processor_time(process.pid))
            _, since, used = seen[process.pid]
            stuck = process.is_alive() and case >= 0
            stuck &= time.time() - since > SILENT or processor_time(process.pid) - used > STUCK
            if stuck:
                process.kill()
            process.join(timeout=0)
            if process.is_alive():
                continue
            if case >= 0:
                why = "no answer" if stuck else f"exit code {process.exitcode}"
                findings.append((case, why))
                print(f"case {case}: {why}", flush=True)
                running[index] = start(case + workers)
            else:
                running.pop(index)
            break
        if time.time() - shown > 30:
            shown = time.time()
            print(f"{total['cases']} cases, {shown - began:.0f} s", file=sys.stderr, flush=True)
    gather()
    return total | {"seconds": time.time() - began}, findings


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, metavar="CASE", help="one case, here")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write that case there")
    options = parser.parse_args()
    if options.only is not None:
        name, data = case_bytes(seeds(), options.seed, options.only)
        path = options.keep or Path(tempfile.mkdtemp()) / "file.bin"
        print(name, *examine(name, data, path))
        return
    total, findings = fuzz(options.cases, options.seed, options.workers)
    print(json.dumps(total))
    print(f"{len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
