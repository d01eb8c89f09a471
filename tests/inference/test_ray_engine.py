"""--engine ray: three nodes on this machine, of which a worker and a node are killed."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path, PurePath

import pytest
from PIL import Image

import scaseg
from scaseg.cli import main
from scaseg.errors import UserError, WorkError
from scaseg.inference import ray_engine
from scaseg.inference.outputs import RECORD, Provenance
from scaseg.inference.pipeline import Settings
from scaseg.inference.sources import InputFile
from tests.clusters import add_node, remove_node
from tests.comparison.queues import open_gate
from tests.inference.models import picture
from tests.inference.test_sources import labels_of, parquet_rows, write_parquet
from tests.processes import wait_until

# in workers: while GATE names a file, no more label maps than it says come into a folder, so that
# there is something left to do for those that are killed
SITECUSTOMIZE = """
import os, time
from pathlib import Path
replace = os.replace
def is_closed(folder):
    try:
        return len(list(folder.glob("*.png"))) >= int(Path(os.environ["GATE"]).read_text())
    except OSError:
        return False
def stalling(source, target):
    while str(target).endswith(".png") and is_closed(Path(target).parent):
        time.sleep(0.05)
    replace(source, target)
os.replace = stalling
"""


@pytest.fixture(scope="module")
def cluster(ray_cluster, tmp_path_factory):
    """A head without workers, two nodes with one each, and the gate of these."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE", str(folder / "gate"))
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        nodes = [add_node(ray_cluster, num_cpus=1) for _ in range(2)]
    yield ray_cluster, nodes, folder / "gate"
    for node in nodes:
        remove_node(ray_cluster, node)


def workers(raylet):
    """The processes of a node that predict."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and b"MapWorker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has just ended
    return found


@pytest.mark.filterwarnings("ignore")  # of Ray about itself
def test_nothing_is_lost_or_doubled_when_a_worker_and_a_node_are_killed(
    cluster, model, serve, tmp_path, capsys
):
    """Byte by byte what one machine writes; then, with one node left, other sources and forms."""
    made, nodes, gate = cluster
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    address, _ = serve(photos)
    for index in range(160):
        Image.fromarray(picture(120, 160 + index % 7, seed=index)).save(photos / f"{index:03}.jpg")
    for index in (30, 90, 150):
        (photos / f"{index:03}.jpg").write_text("no image")
    options = ["--model", model, "--device", "cpu", "--json", "--skip-bad"]
    main(["predict", str(photos), *options, "--out", str(tmp_path / "one")])

    command = [sys.executable, "-m", "scaseg.cli", "predict"]

    def start(*images_and_more):
        return subprocess.Popen(
            [*command, *options, "--engine", "ray", *map(str, images_and_more)],
            env={**os.environ, "RAY_ADDRESS": made.address, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def done():
        return len(labels_of(out))

    raylets = [next(iter(node.all_processes["raylet"])).process.pid for node in nodes]
    open_gate(gate, 20)
    running = start(photos, "--out", out)
    wait_until(lambda: done() >= 10 and any(map(workers, raylets)), running)
    victim = next(pid for raylet in raylets for pid in workers(raylet))
    os.kill(victim, signal.SIGKILL)
    at_first = done()
    open_gate(gate, at_first + 20)
    wait_until(lambda: done() >= at_first + 10, running)
    at_second = done()
    remove_node(made, nodes[1])
    gate.unlink()
    said, errors = running.communicate(timeout=600)
    assert running.returncode == 0, errors
    assert at_second < 157
    assert re.fullmatch(r"157 images segmented in .*; 3 bad ones skipped: .*\n", said)
    assert errors.count("skipped: ") == 3
    files = [
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (tmp_path / "one", out)
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 2 * 157 + 1  # label maps, areas, and the record of who made them

    packed = ("--out", str(tmp_path / "table"), "--format", "parquet", "--per-part", "30")
    main([*command[3:], str(photos), *options, *packed])
    for number in (0, 2, 3):
        (tmp_path / "table" / f"part-{number:06}.parquet").unlink()
    before = len(parquet_rows(tmp_path / "table"))
    said, errors = start(photos, *packed, "--skip-existing").communicate(timeout=600)
    assert f"{157 - before} images segmented" in said, errors
    assert f"{before} existed already" in said
    assert parquet_rows(tmp_path / "table") == labels_of(out)

    # from a web server, and out of a table of bytes, into tar files
    names = sorted(labels_of(out))[:16]
    (tmp_path / "list.txt").write_text("\n".join(f"{address}/{name}.jpg" for name in names[:8]))
    write_parquet(tmp_path / "t.parquet", [photos / f"{name}.jpg" for name in names[8:]])
    sources = (tmp_path / "list.txt", tmp_path / "t.parquet", "--out", tmp_path / "tars")
    ended = start(*sources, "--format", "webdataset", "--per-part", 5).communicate(timeout=600)
    assert "16 images segmented" in ended[0], ended[1]
    maps = []
    for path in sorted((tmp_path / "tars").glob("*.tar")):
        with tarfile.open(path) as tar:
            maps += [tar.extractfile(one).read() for one in tar if one.name.endswith(".png")]
    assert maps == [labels_of(out)[name] for name in names]

    counts = f"worker killed at {at_first}, node at {at_second} of 160 images"
    with capsys.disabled():
        print(f"\n{counts}: 157 results, 3 bad, 0 lost, 0 doubled; as one machine writes them")


@pytest.fixture
def settings(model, tmp_path):
    made = Settings(Path(model), tmp_path / "out", device="cpu")
    Provenance(made.out, made.model, made.changing()).begin()
    return made


def run(settings, *files, number=3):
    row = {"number": number, "part": "", "files": ray_engine._dump(files)}
    return ray_engine._Worker(settings, os.getcwd())(row)


def test_a_worker_tells_bad_images_from_a_machine_that_sees_none(settings, tmp_path):
    """What one machine does not see is no bad image: --skip-bad would lose its whole share."""
    (tmp_path / "bad.jpg").write_text("no image")
    Image.fromarray(picture(20, 20)).save(tmp_path / "good.jpg")
    bad, good = (InputFile(tmp_path / f"{name}.jpg", PurePath(name)) for name in ("bad", "good"))
    found = run(settings, bad, good)
    assert (found["number"], found["fault"]) == (3, "")
    place, problem, *_ = json.loads(found["errors"])["0"]
    assert place.endswith("bad.jpg")
    assert problem == "not an image"
    assert list(labels_of(settings.out)) == ["good"]
    unseen = InputFile(tmp_path / "elsewhere.jpg", PurePath("elsewhere"))
    assert "is not seen by" in run(settings, good, unseen)["fault"]


def test_a_worker_that_sees_another_model_or_another_folder_does_nothing(settings, tmp_path):
    other = tmp_path / "other"
    scaseg.create_model("tiny", head="pointwise", classes=2).save_pretrained(other)
    Image.fromarray(picture(20, 20)).save(tmp_path / "good.jpg")
    good = InputFile(tmp_path / "good.jpg", PurePath("good"))
    changed = Settings(**{**vars(settings), "model": other})
    assert "is another model" in run(changed, good)["fault"]
    (settings.out / RECORD).unlink()
    assert "is not seen by" in run(settings, good)["fault"]
    assert not any(settings.out.iterdir())


def test_names_travel_as_they_are():
    files = [
        InputFile(Path(os.fsdecode(b"a/\xff\xfe.png")), PurePath(os.fsdecode(b"\xff\xfe"))),
        InputFile("s3://bucket/a b.jpg", PurePath("a b")),
        InputFile(Path("shards/日.tar"), PurePath("日/7"), 7),
    ]
    assert ray_engine._parse(ray_engine._dump(files)) == files


def test_without_ray(model, tmp_path, monkeypatch):
    Image.fromarray(picture(20, 20)).save(tmp_path / "good.jpg")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--engine: ray; install it: pip install 'scaseg\[ray\]'"):
        scaseg.predict_folder(model, tmp_path / "good.jpg", tmp_path / "out", engine="ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore")  # of Ray about itself
def test_a_cluster_that_is_not_there(model, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'scaseg[ray]'")

    def refuse(**_):
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379\nand pages more")

    Image.fromarray(picture(20, 20)).save(tmp_path / "good.jpg")
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(WorkError, match=r"10\.0\.0\.1:6379; check RAY_ADDRESS, and RAY_AUTH_MODE"):
        scaseg.predict_folder(model, tmp_path / "good.jpg", tmp_path / "out", engine="ray")
    assert not (tmp_path / "out").exists()
