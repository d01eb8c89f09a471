import csv
import json
import resource
import subprocess
import sys
from functools import partial

import pytest
import torch

import scaseg
from scaseg.bench import run as bench
from scaseg.bench.contenders import Setting, contexts
from scaseg.bench.measure import Contender
from scaseg.cli import COMMANDS, build_parser, main
from scaseg.io.table import read_rows
from scaseg.registry import CONTEXTS

ONCE = ("--repeats", "1", "--limit", "900")  # after 10 s a larger size would be left out


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "scaseg.cli", *arguments], capture_output=True, text=True
    )


def test_version():
    assert run("--version").stdout == f"scaseg {scaseg.__version__}\n"


def test_help_does_not_wait_for_torch():
    script = "import sys, scaseg.cli\ntry: scaseg.cli.main(['--help'])\nexcept SystemExit: pass\n"
    script += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "scaseg train" in done.stdout
    # of the processor: others may be at work on this machine
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_only_the_called_command_is_built():
    assert list(build_parser("bench").commands()) == ["bench"]
    assert tuple(build_parser("frob").commands()) == COMMANDS


def test_bench_measures_everything_side_by_side(capsys):
    main(["bench", "--sizes", "32,200", "--channels", "8", *ONCE, "--json"])
    report = json.loads(capsys.readouterr().out)
    names = [row["contender"] for row in report["rows"] if row["size"] == 200]
    assert names == [
        "reference (K=64)",
        "dense",
        "linear",
        "attention (SDPA)",
        "two 1x1 convolutions",
    ]
    assert all(row["forward"] > 0 and row["both"] > 0 for row in report["rows"])


def test_what_bench_has_measured_is_kept(tmp_path, capsys, monkeypatch):
    def contenders(size, setting):
        nothing = lambda: None  # noqa: E731
        yield Contender("first", nothing, nothing)
        yield Contender("fails", partial(fail, RuntimeError("too large\nfor it")), nothing)
        yield Contender("second", nothing, nothing)
        yield Contender("cut off", partial(fail, KeyboardInterrupt()), nothing)

    def fail(error):
        raise error

    monkeypatch.setitem(bench.KINDS, "block", (contenders, "first", "n", "both"))
    with pytest.raises(SystemExit):
        main(
            ["bench", "--what", "block", "--sizes", "30", "--repeats", "1", "--out", f"{tmp_path}"]
        )
    assert [row["contender"] for row in read_rows(tmp_path / "block.csv")] == ["first", "second"]
    assert "left out: fails at 30: too large\n" in capsys.readouterr().err


def test_bench_of_blocks_is_written(tmp_path, capsys):
    options = ["--sizes", "30,60", "--channels", "8", *ONCE, "--precision", "bf16"]
    main(["bench", "--what", "block", *options, "--out", str(tmp_path / "timings")])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["60", "non-local", "(SDPA)"] for line in lines)
    assert any("time grows like size^" in line for line in lines)
    with (tmp_path / "timings" / "block.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["contender"] for row in rows[:3]] == ["sca", "sca, exp", "sca, relu"]
    assert all(row["date"] and "torch" in row["machine"] for row in rows)
    text = (tmp_path / "timings" / "block.md").read_text()
    assert text.count("| its 1x1 convolutions |") == 2
    assert (tmp_path / "timings" / "block.png").stat().st_size > 10_000


def test_bench_of_all_contexts(capsys, monkeypatch):
    """What is known to need more than there is is not tried: a CPU's process would be killed."""
    setting = Setting(1, 8, 4, "fcn", "32", False, torch.device("cpu"))
    assert [one.name for one in contexts(12, setting)] == list(CONTEXTS)
    monkeypatch.setattr("scaseg.bench.contenders.CONTEXTS", ["average", "psa"])
    monkeypatch.setattr("scaseg.bench.run.available_memory", lambda place: 4_000_000)
    options = ["--sizes", "9,600", "--channels", "8", "--hidden", "4", *ONCE]
    main(["bench", "--what", "contexts", *options, "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    measured = [(row["contender"], row["size"], row["both"] > 0) for row in rows]
    assert measured[:3] == [("average", 9, True), ("psa", 9, True), ("average", 600, True)]
    assert measured[3:] == [("psa", 600, False)]  # 600 x 600 coefficients


def test_bench_of_chosen_contexts(capsys):
    """With options of theirs; compared with the first."""
    options = ("--sizes", "40", "--channels", "8", "--repeats", "1", "--what", "contexts")
    chosen = ("cells:grid=2", "average,dot")
    main(["bench", *options, "--contexts", *chosen])
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].endswith("cells:grid=2 is faster")
    assert [line.split()[1] for line in lines[5:8]] == [
        "cells:grid=2",
        "average",
        "dot",
    ]
    for bad, message in (
        (["--what", "block", "--contexts", "sca"], "--contexts: given with --what block; use"),
        (["--what", "contexts", "--contexts", "dots"], "--contexts: 'dots'; did you mean dot?"),
        (["--what", "contexts", "--contexts", "dot:grid=2"], "--contexts: dot:grid=2: grid"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["bench", *bad])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_bench_leaves_out_what_took_too_long(capsys):
    options = ["--sizes", "16,32", "--channels", "4", "--repeats", "1", "--limit", "0"]
    main(["bench", *options])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["16", "linear"] for line in lines)
    assert not any(line.split()[:1] == ["32"] for line in lines)


def test_bench_of_a_step(capsys):
    options = ["--sizes", "32", "--head", "pointwise", "--repeats", "1", "--json"]
    main(["bench", "--what", "step", *options])
    report = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in report["rows"]] == ["none", "average", "sca"]
    assert report["channels"] == "vgg16, head pointwise"


def test_bench_prints_a_table(capsys):
    main(["bench", "--sizes", "16", "--channels", "4", "--repeats", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert any("linear" in line and "ms" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_interruption_is_130(monkeypatch):
    import scaseg.bench.run

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(scaseg.bench.run, "run", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["bench"])
    assert stop.value.code == 130
