"""How fast the explorer is: python benchmarks/explorer.py PHOTOGRAPH [MODEL], with chromium.

From the command to a page that works; the first segmentation of a photograph (640 x 480); from the
pointer to the drawn map, the median of 200 moves. Beside the first two what the server took of the
processor, which other programs disturb less.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

MOVES = """() => {
  const surface = document.querySelector(".surface");
  const box = surface.getBoundingClientRect();
  const map = document.querySelector("canvas.map");
  const times = [];
  for (let i = 0; i < 200; i++) {
    const from = performance.now();
    surface.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
      clientX: box.left + box.width * ((i * 37) % 100) / 100,
      clientY: box.top + box.height * ((i * 53) % 100) / 100}));
    times.push(performance.now() - from);
  }
  return {neurons: (map.width - 2) * (map.height - 2), times};
}"""


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        photograph = Path(folder) / "photograph.png"
        picture = Image.open(sys.argv[1]).convert("RGB").resize((640, 480))
        picture.save(photograph)
        began = time.perf_counter()
        command = [sys.executable, "-m", "scaseg.cli", "explore", "--port", "0", "--quiet"]
        if len(sys.argv) > 2:
            command += ["--model", sys.argv[2]]
        server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()  # type: ignore[union-attr]
            with sync_playwright() as started:
                chromium = shutil.which("chromium")
                browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page()
                page.goto(address)
                page.wait_for_selector(".surface")
                used = processor_seconds(server.pid)
                spent = time.perf_counter() - began
                print(f"to a page that works: {spent:.1f} s (processor {used:.1f} s)")
                began = time.perf_counter()
                page.set_input_files("#file", photograph)
                page.wait_for_selector('body[data-image="photograph.png"]')
                spent = time.perf_counter() - began
                used = processor_seconds(server.pid) - used
                print(f"a photograph of 640 x 480: {spent:.2f} s (processor {used:.2f} s)")
                found = page.evaluate(MOVES)
                median = statistics.median(found["times"])
                print(f"pointer to map, n = {found['neurons']}: {median:.2f} ms")
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
