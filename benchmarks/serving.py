"""scaseg serve against the same model behind a plain FastAPI loop, under load.

    python benchmarks/serving.py PHOTOGRAPH [--clients 1 4 16] [--seconds 20] [--rounds 3]

Each client asks again as soon as it was answered (an answer of 503 is obeyed and not counted).
Servers take turns, so that a busy machine is busy for all of them. Prints requests a second, the
median and the 99th percentile of the time to an answer, over all rounds; and what an answer took of
the processor, in the server's threads together, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
from PIL import Image

PLAIN = """
import io, sys
import scaseg, uvicorn
from fastapi import FastAPI, File, Response, UploadFile
from PIL import Image
app, model = FastAPI(), scaseg.load_model("outdoor")
@app.get("/ready")
def ready(): return {}
def segment(file):
    buffer = io.BytesIO()
    model.predict(Image.open(file)).as_image().save(buffer, "PNG")
    return Response(buffer.getvalue(), media_type="image/png")
if sys.argv[2] == "def":
    @app.post("/api/labels")
    def labels(image: UploadFile): return segment(image.file)
else:
    @app.post("/api/labels")
    async def labels(image: UploadFile): return segment(image.file)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""
SERVERS = {
    "scaseg serve": [sys.executable, "-m", "scaseg.cli", "serve", "--quiet", "--port", "{port}"],
    "the same in bf16": [
        *(sys.executable, "-m", "scaseg.cli", "serve", "--quiet", "--port", "{port}"),
        *("--precision", "bf16"),
    ],
    "plain, def": [sys.executable, "-c", PLAIN, "{port}", "def"],
    "plain, async def": [sys.executable, "-c", PLAIN, "{port}", "async"],
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(address: str, data: bytes, clients: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of every answer, and how long all took."""
    until = time.perf_counter() + seconds

    def ask(_: int) -> list[float]:
        times = []
        with httpx2.Client(base_url=address, timeout=120) as web:
            while (began := time.perf_counter()) < until:
                answer = web.post("/api/labels", files={"image": ("x.jpg", data)})
                if answer.status_code == 503:
                    time.sleep(float(answer.headers["retry-after"]))
                    continue
                assert answer.status_code == 200, answer.text
                times.append(time.perf_counter() - began)
        return times

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        found = [one for times in threads.map(ask, range(clients)) for one in times]
    return found, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photograph", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--size", type=int, nargs=2, default=[640, 480])
    options = parser.parse_args()
    buffer = io.BytesIO()
    picture = Image.open(options.photograph).convert("RGB").resize(tuple(options.size))
    picture.save(buffer, "JPEG", quality=90)
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    spent: dict[tuple[str, int], float] = defaultdict(float)
    computed: dict[tuple[str, int], float] = defaultdict(float)
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    for _ in range(options.rounds):
        for name in options.servers:
            command, port = SERVERS[name], free_port()
            server = subprocess.Popen(
                [part.replace("{port}", str(port)) for part in command],
                stdout=subprocess.DEVNULL,
                env=environment,
            )
            address = f"http://127.0.0.1:{port}"
            try:
                while True:
                    try:
                        httpx2.get(f"{address}/ready", timeout=60)
                        break
                    except httpx2.HTTPError:
                        time.sleep(0.2)
                measure(address, buffer.getvalue(), 2, 3)  # what the first images cost
                for clients in options.clients:
                    before = processor_seconds(server.pid)
                    times, seconds = measure(address, buffer.getvalue(), clients, options.seconds)
                    found[name, clients] += times
                    spent[name, clients] += seconds
                    computed[name, clients] += processor_seconds(server.pid) - before
            finally:
                server.terminate()
                server.wait()
    print("server             clients  requests/s  p50 ms  p99 ms  CPU ms  answers")
    for (name, clients), times in sorted(found.items(), key=lambda item: item[0][1]):
        p50, p99 = 1000 * np.percentile(times, (50, 99))
        rate = len(times) / spent[name, clients]
        used = 1000 * computed[name, clients] / len(times)
        line = f"{name:18s} {clients:7d}  {rate:10.2f}  {p50:6.0f}  {p99:6.0f}  {used:6.0f}"
        print(f"{line}  {len(times):7d}")


if __name__ == "__main__":
    main()
