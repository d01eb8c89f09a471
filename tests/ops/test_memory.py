"""linear never holds a coefficient for every pair."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scaseg.ops import autograd
from scaseg.ops.dispatch import selective_context
from tests.ops.cases import ACTIVATION_NAMES, assert_agree, outputs_and_grads, random_case


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes, forward and backward."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Counts what a forward pass keeps for the backward pass."""

    def __init__(self):
        self.elements = 0
        self.seen = set()

        def count(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.seen:
                self.seen.add(storage.data_ptr())
                self.elements += storage.nbytes() // tensor.element_size()
            return tensor

        super().__init__(count, lambda tensor: tensor)


def largest_tensor(backend, activation, n, **options):
    case = random_case(n, features=4, activation=activation, dtype=torch.float32, **options)
    with LargestTensor() as largest:
        outputs_and_grads(case, backend)
    return largest.elements


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("channels", [1, 2])
def test_no_tensor_grows_like_the_square(activation, channels):
    small, large = (
        largest_tensor("linear", activation, n, channels=channels) for n in (2000, 8000)
    )
    assert large <= 5 * small  # four times the neurons, and a few more nodes
    assert large < 8000 * 8000 / 50


def test_that_test_would_catch_one():
    assert largest_tensor("dense", "sigmoid", 2000) >= 2000 * 2000


@pytest.fixture
def sliced(monkeypatch):
    """Run a problem with a small limit: its result, largest tensor, and elements saved."""

    def run(case, limit):
        saved = SavedTensors()
        with monkeypatch.context() as patch, LargestTensor() as largest, saved:
            patch.setattr(autograd, "LIMIT", limit)
            result = outputs_and_grads(case, "linear")
        return result, largest.elements, saved.elements

    return run


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
def test_wide_ranges_are_worked_through_in_slices(activation, sliced):
    """Many nodes times many neurons must not add up, in the backward pass either."""
    case = random_case(700, scale=20.0, batch=2, channels=2, activation=activation, masked=True)
    result, largest, saved = sliced(case, 50_000)
    assert largest <= 100_000
    assert saved <= 200_000, "slices kept for the backward pass add up"
    assert_agree(result, outputs_and_grads(case, "linear"), 1e-12)


@pytest.mark.parametrize("activation", ["sigmoid", "softplus", "exp"])
def test_many_targets_of_few_sources_are_sliced_too(activation, sliced):
    case = random_case(20, targets=4000, channels=2, activation=activation)
    result, largest, saved = sliced(case, 50_000)
    assert largest <= 120_000  # the whole basis would be 4000 * 2 * 50
    assert saved <= 200_000
    assert_agree(result, outputs_and_grads(case, "linear"), 1e-12)


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
def test_more_nodes_than_targets_are_never_used(activation, sliced):
    """Scores of +-1e4 would need 100,000 nodes: then the targets are computed, in slices."""
    case = random_case(300, scale=5e3, activation=activation)
    result, largest, saved = sliced(case, 20_000)
    assert largest <= 20_000
    assert saved <= 30_000, "slices kept for the backward pass add up"
    assert_agree(result, outputs_and_grads(case, "reference"), 1e-8)


SCRIPT = """
import sys, torch
from scaseg import selective_context
torch.set_num_threads(1)
def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
def step(n):
    torch.manual_seed(0)
    values = torch.randn(1, n, 64, requires_grad=True)
    s, t = (torch.randn(1, n, requires_grad=True) for _ in range(2))
    before = peak()
    context = selective_context(values, s, t, activation=sys.argv[1], backend="linear")
    context.sum().backward()
    return peak() - before
step(100)  # what libraries load on first use is not the operator's
print(step(131072) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_a_street_scene_takes_less_than_a_gibibyte(activation):
    """n = 131,072, M = 64, forward and backward; the coefficients alone would take 64 GiB."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, activation], capture_output=True, text=True, check=True
    )
    peak = int(done.stdout)
    print(f"{activation}: {peak / 2**20:.0f} MiB")
    assert 64 * 131072 * 4 < peak < 2**30  # at least the context itself must show


def test_forward_alone_keeps_nothing():
    values = torch.randn(1, 3000, 8, requires_grad=True)
    score = torch.randn(1, 3000)
    with torch.no_grad():
        assert selective_context(values, score, score).grad_fn is None
