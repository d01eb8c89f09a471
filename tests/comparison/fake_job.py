"""A job that trains nothing: what the queue starts in tests, without seconds of imports.

FAKE_JOB, or orders.json beside the folder of the comparison, is JSON: seconds to work in, variants
that fail, where to write when it worked (the diary). Tests that need jobs to be at work just then
do not count on seconds: `beside` jobs must have begun before one ends, no more than the number in
the file `gate` may have ended, and saving takes until the file `saved` is there.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

SAYS = "began", "ended", "stopped"
# as in comparison/statistics.py, whose import would take seconds
MEASURES = ("entropy", "rank_correlation", "difference", "same_class", "same_class_if_even")
MEASURES += ("occlusion_pointed", "occlusion_random")


def main():
    tasks = queue.SimpleQueue()
    if not (text := _line()):
        sys.exit("error: the queue was killed before it could say what to do")
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    says = os.dup(1)
    while "log" in (task := json.loads(text)):  # others may come
        with open(task["log"], "ab") as log:
            os.dup2(log.fileno(), 2)
        _do(task)
        os.write(says, b"\n")
        text = tasks.get()
    if task:  # an empty one is the last
        _do(task)
    elif "stays" in os.environ.get("FAKE_JOB", ""):
        time.sleep(600)


def _do(task):
    place = Path(task["place"])
    ordered = place.parents[2] / "orders.json"
    usual = ordered.read_text() if ordered.is_file() else "{}"
    orders = json.loads(os.environ.get("FAKE_JOB", usual))
    place.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: _stop(orders, place))
    _say(orders, place, "began")
    variant, seed, fold = task["facts"].values()
    seconds = orders.get("seconds", 0.0)
    time.sleep(seconds)
    _wait_until(lambda: _said(orders, "began") >= orders.get("beside", 0))
    if "gate" in orders:
        _wait_until(lambda: _said(orders, "ended") < int(Path(orders["gate"]).read_text()))
    if variant in orders.get("fail", ()):
        sys.exit("much was said\nerror: epoch 1, step 3: no such luck")
    for name in ("checkpoints", "model"):
        (place / name).mkdir(exist_ok=True)
    (place / "checkpoints" / "last.ckpt").write_text("state")
    score = 10.0 * len(variant) + seed + (fold or 0)
    row = {"PPA": score + 2, "CAA": score + 1, "mIoU": score, "split": _split(task)}
    row |= dict.fromkeys(MEASURES, "")
    row |= {"parameters": 10, "milliseconds": 4.0, "mebibytes": "", "seconds": seconds}
    row |= {"side_by_side": task["side_by_side"]}
    temporary = place / f".result-{os.getpid()}"  # another queue's job may be at its end beside it
    temporary.write_text(json.dumps(task["facts"] | row))
    temporary.rename(place / "result.json")
    _say(orders, place, "ended")


def _stop(orders, place):
    _say(orders, place, "told")
    if "saved" in orders:
        _wait_until(Path(orders["saved"]).exists)
    _say(orders, place, "stopped")
    sys.exit(143)


def _split(task):
    data = task["run"]["data"]
    return f"fold {data['fold']} of {data['folds']}" if data["folds"] else "the split test"


def _say(orders, place, what):
    if "diary" in orders:
        line = f"{what} {place.name} {os.getpid()} {time.time()}\n"
        file = os.open(orders["diary"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)


def _said(orders, what):
    return Path(orders["diary"]).read_text().count(what) if "diary" in orders else 0


def _wait_until(true):
    while not true():
        time.sleep(0.01)


def _line():
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            return b""
        text += part
    return text


def _listen(tasks):
    while text := _line():
        tasks.put(text)
    os._exit(1)


if __name__ == "__main__":
    main()
