"""What networks do to many machines, simulated on this one: figures behind docs/scale.md, as CSV.

    sudo python benchmarks/scale_network.py > docs/timings/scale_network.csv

Machines are network namespaces (Linux, root, `ip` and `tc`) behind links of 1 Gbit/s, in each of
which a process takes part in an all-reduce by gloo, as DDP does with gradients. The object store is
a server on this machine that answers after 30 ms.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scaseg.io.remote import read_object

NUMBERS = 8_000_000  # float32, of an all-reduce
RATE = 1e9  # bits/s of a machine's link
LATENCY = 0.03  # seconds until the store answers
PHOTOGRAPH = 83_660  # bytes, as in scale_cpu.csv

# run in each namespace: rank, machines
MACHINE = """
import sys, time, torch, torch.distributed as dist
rank, machines, numbers = map(int, sys.argv[1:])
dist.init_process_group("gloo", "tcp://10.77.0.1:29517", rank=rank, world_size=machines)
gradients, best = torch.zeros(numbers), float("inf")
for _ in range(4):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(gradients)
    best = min(best, time.perf_counter() - began)
if rank == 0:
    print(best)
dist.destroy_process_group()
"""


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["what", "value", "unit", "date", "machine"])
    day = time.strftime("%Y-%m-%d")
    for machines in (2, 4):
        seconds = all_reduce(machines)
        computed = 2 * (machines - 1) / machines * 4 * NUMBERS * 8 / RATE
        what = f"gradients of {NUMBERS:,} weights between {machines} machines of 1 Gbit/s"
        where = f"network namespaces, gloo; computed: {computed:.3f} s"
        writer.writerow([what, f"{seconds:.3f}", "s", day, where])
    for threads in (4, 16):
        what = f"photographs from a store that answers after 30 ms, {threads} threads"
        where = f"a server on the same machine; computed: {threads / LATENCY:.0f} photographs/s"
        writer.writerow([what, f"{photographs(threads):.0f}", "photographs/s", day, where])


def all_reduce(machines: int) -> float:
    """Seconds to add up NUMBERS over machines, each in a namespace behind a link of its own."""

    def run(text: str) -> None:
        subprocess.run(text.split(), check=True)

    names = [f"scale-{number}" for number in range(machines)]
    shaped = f"root tbf rate {RATE / 1e6:.0f}mbit burst 256kb latency 20ms"
    try:
        run("ip netns add scale-hub")
        run("ip -n scale-hub link add hub type bridge")
        run("ip -n scale-hub link set hub up")
        for number, name in enumerate(names):
            run(f"ip netns add {name}")
            run(f"ip link add wire netns {name} type veth peer name port{number} netns scale-hub")
            run(f"ip -n scale-hub link set port{number} master hub up")
            run(f"ip -n {name} addr add 10.77.0.{number + 1}/24 dev wire")
            run(f"ip -n {name} link set wire up")
            run(f"ip -n {name} link set lo up")
            run(f"tc -n {name} qdisc add dev wire {shaped}")
            run(f"tc -n scale-hub qdisc add dev port{number} {shaped}")
        command = [sys.executable, "-c", MACHINE]
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "wire", "OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command, str(rank), str(machines), str(NUMBERS)],
                env=env,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, name in enumerate(names)
        ]
        said = [process.communicate(timeout=120)[0] for process in started]
        return float(said[0])
    finally:
        for name in ("scale-hub", *names):
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


class Slow(SimpleHTTPRequestHandler):
    """A server that answers late, and says nothing else."""

    protocol_version = "HTTP/1.1"  # connections stay open

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        time.sleep(LATENCY)
        super().do_GET()


def photographs(threads: int, count: int = 400) -> float:
    """Photographs a second that so many threads get from a store."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "photo.jpg").write_bytes(os.urandom(PHOTOGRAPH))
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Slow, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/photo.jpg"
        read_object(address, 1 << 20)
        with ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            for _ in pool.map(lambda _: read_object(address, 1 << 20), range(count)):
                pass
            found = count / (time.perf_counter() - began)
        server.shutdown()
    return found


if __name__ == "__main__":
    main()
