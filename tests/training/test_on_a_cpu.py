"""What is done on a CPU alone: the layout of maps, and memory that a training keeps."""

import os
import platform
import resource
from pathlib import Path

import pytest
import torch

from scaseg import create_model, predict
from scaseg.config.run import MachineConfig, TrainingConfig
from scaseg.data.sample import Batch
from scaseg.system import kept_memory
from scaseg.training.module import SegmentationModule

SIZES = (1 << 24, 1 << 23, 3 << 22, 1 << 22)  # of tensors, in numbers
is_kept = platform.libc_ver()[0] == "glibc" and not any(
    name.startswith("MALLOC_") for name in os.environ
)


def pages():
    """Of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def made(backbone, **machine):
    torch.manual_seed(0)
    model = create_model(backbone, "sca", "light", classes=3)
    module = SegmentationModule(model, TrainingConfig())
    module.use_cpu(MachineConfig(**machine))
    return module.train()


def batch():
    torch.manual_seed(1)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    labels = torch.randint(0, 3, (2, 64, 64), dtype=torch.uint8)
    return Batch(images, labels, torch.tensor([[64, 64]] * 2), ["a", "b"])


@pytest.mark.parametrize(
    ("backbone", "asked", "expected"),
    [
        ("mobilenet_v2", None, True),
        ("mobilenet_v2", False, False),
        ("tiny", None, False),
        ("tiny", True, True),
    ],
)
def test_the_layout_that_is_faster(backbone, asked, expected):
    module, seen = made(backbone, channels_last=asked), []
    layer = next(one for one in module.model.backbone.modules() if isinstance(one, torch.nn.Conv2d))
    layer.register_forward_hook(lambda _, given, out: seen.append(out))
    module.batch_loss(batch())
    assert seen[0].is_contiguous(memory_format=torch.channels_last) == expected


@pytest.mark.parametrize(("backbone", "expected"), [("mobilenet_v2", True), ("tiny", False)])
def test_predictions_have_that_layout_too(backbone, expected):
    model, seen = create_model(backbone, "sca", "light", classes=3), []
    layer = next(one for one in model.backbone.modules() if isinstance(one, torch.nn.Conv2d))
    layer.register_forward_hook(lambda _, given, out: seen.append(out))
    predict(model, torch.randint(0, 256, (3, 64, 48), dtype=torch.uint8))
    assert seen[0].is_contiguous(memory_format=torch.channels_last) == expected


def test_layouts_give_the_same_gradients():
    found = []
    for channels_last in (False, True):
        module = made("mobilenet_v2", channels_last=channels_last)
        for one in module.model.modules():  # norms of random weights magnify what is rounded
            if isinstance(one, torch.nn.BatchNorm2d):
                one.eval()
            if isinstance(one, torch.nn.Dropout):
                one.p = 0.0
        module.batch_loss(batch()).backward()
        found.append([one.grad for one in module.parameters() if one.grad is not None])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3 * float(one.abs().max()))


@pytest.mark.skipif(not is_kept, reason="another allocator than glibc's, or one that is set up")
def test_what_tensors_give_back_is_used_again():
    def cleared():
        """Pages that the system clears for four steps: 45,000 and more if nothing is kept."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            held = [torch.ones(count) for count in SIZES]
            del held
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with kept_memory("cpu"):
        assert min(cleared() for _ in range(10)) < 1000
        kept = pages()
    assert kept - pages() > 12_000  # they go back


def test_a_training_keeps_memory_on_a_cpu(monkeypatch, tmp_path):
    from scaseg.training import run

    seen = []
    monkeypatch.setattr(
        run, "kept_memory", lambda device: seen.append(device) or kept_memory(device)
    )
    keys = {"data.limit": 4, "training.epochs": 1}
    keys |= {"model.backbone": "tiny", "machine.device": "cpu", "machine.workers": 0}
    run.train("context_scenes_global", overrides=keys, fast_dev_run=True, quiet=True)
    assert seen == ["cpu"]
