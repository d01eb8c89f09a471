"""The machine: device, precision, memory."""

import mmap

import numpy as np
import pytest
import torch

from scaseg import system
from scaseg.errors import UserError
from scaseg.system import (
    DEVICES,
    PRECISIONS,
    MemoryPeak,
    autocast,
    available_memory,
    choose_device,
    choose_precision,
)


def test_the_device_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == choose_device("cpu") == "cpu"
    with pytest.raises(UserError, match=r"^--device: cuda is not available here; use cpu"):
        choose_device("cuda")
    with pytest.raises(UserError, match=r"^--device: 'gpu'; did you mean cuda\? give one of auto,"):
        choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device() == "cuda"
    assert DEVICES == ("auto", "cpu", "cuda", "mps")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_activations_have_the_precision_and_weights_keep_theirs(precision):
    layer = torch.nn.Linear(4, 4)
    with autocast("cpu", precision):
        found = layer(torch.ones(1, 4))
    assert str(found.dtype) == f"torch.{PRECISIONS[precision]}"
    assert layer.weight.dtype == torch.float32


def test_auto_is_bf16_only_where_a_gpu_computes_in_it(monkeypatch):
    assert choose_precision("auto", "cpu") == "32"
    assert choose_precision("16", "cpu") == "16"
    for supported, chosen in ((True, "bf16"), (False, "32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated, x=supported: x)
        assert choose_precision("auto", "cuda") == chosen


def test_an_unknown_precision():
    with pytest.raises(UserError, match=r"^precision: 'fp16'; did you mean 16\? give one of 32, b"):
        autocast("cpu", "fp16")


def test_the_peak_is_what_came_on_top():
    with MemoryPeak() as peak:
        pages = mmap.mmap(-1, 32 << 20)  # fresh ones: malloc may have some left from before
        np.frombuffer(pages, np.uint8)[:] = 1
    if peak.mebibytes is None:
        pytest.skip("needs Linux's /proc")
    assert 30 < peak.mebibytes < 60


def test_memory_without_proc(monkeypatch):
    def missing(path, name):
        raise OSError(path)

    monkeypatch.setattr(system, "_kibibytes", missing)
    assert available_memory(torch.device("cpu")) > 2**28  # all of it
    with MemoryPeak() as peak:
        pass
    assert peak.mebibytes is None
    assert available_memory(torch.device("meta")) is None


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("", 8)],
)
def test_a_container_may_use_no_more_cores_than_its_quota(tmp_path, monkeypatch, quota, cores):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr("scaseg.system.CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert system.usable_cores() == cores
