"""50 visitors at once: python -m tests.explorer.load [--visitors 50] [--requests 10] [--model M]

Each uploads a picture of its own and asks for its labels, maps and views. Answers must be its own;
a server that is busy says when to come again. Prints the counts, and the server's memory before
and after each round; fails where it grows.
"""

import argparse
import io
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
from PIL import Image


def memory(process):
    """MiB that a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def visit(address, number, requests, counts):
    """Upload one picture and ask for what is its own, until all requests were answered."""
    height, width = 48 + number, 64 + number % 7
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    with httpx2.Client(base_url=address, timeout=120) as web:
        web.get("/")

        def ask(method, path, **options):
            while True:
                answer = web.request(method, path, **options)
                counts[answer.status_code] += 1
                if answer.status_code != 503:
                    return answer
                time.sleep(float(answer.headers["retry-after"]))

        found = ask("POST", "/api/images", files={"image": ("x.png", buffer.getvalue())}).json()
        assert (found["height"], found["width"]) == (height, width)
        first = None
        for turn in range(requests - 1):
            if turn % 3 == 0:
                data = ask("GET", f"/api/images/{found['id']}/labels.png").content
                assert Image.open(io.BytesIO(data)).size == (width, height)
                first = first or data
                assert data == first
            elif turn % 3 == 1:
                shares = ask("GET", f"/api/images/{found['id']}/dependency?row=1&col=2").json()
                assert abs(sum(shares["shares"]) - 1) < 1e-4
            else:
                view = ask("GET", f"/api/images/{found['id']}/view").json()
                assert (view["image"]["height"], view["image"]["width"]) == (height, width)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="outdoor")
    options = parser.parse_args()
    command = [sys.executable, "-m", "scaseg.cli", "explore", "--port", "0", "--quiet"]
    command += ["--model", options.model]
    server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        counts, held = Counter(), []
        visit(address, 0, options.requests, Counter())  # the model is loaded
        began = time.perf_counter()
        for _ in range(options.rounds):
            held.append(memory(server.pid))
            print(f"{held[-1]} MiB", file=sys.stderr, flush=True)
            with ThreadPoolExecutor(options.visitors) as threads:
                work = [
                    threads.submit(visit, address, number, options.requests, counts)
                    for number in range(options.visitors)
                ]
                for one in work:
                    one.result()
        held.append(memory(server.pid))
        seconds = round(time.perf_counter() - began, 1)
        print(json.dumps({"answers": dict(counts), "seconds": seconds, "MiB": held}))
        assert set(counts) <= {200, 201, 503}
        # the first round fills caches; the rest must find room there
        assert len(held) < 3 or held[-1] <= 1.1 * held[1] + 32, "the memory grows"
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
