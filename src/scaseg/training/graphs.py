"""CUDA graphs in training: a step's kernels are recorded once, and replayed with two calls.

A step of a light network is a thousand small kernels, and the host takes longer to launch them one
by one than a GPU takes to run them (docs/speed.md).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scaseg.config.run import RunConfig

WARM_UP = 3  # steps before a recording: cuDNN searches, Triton compiles
# batches from which channels_last pays: cuDNN takes 19 s to prepare MobileNetV2's kernels in it,
# and they save 6 ms a batch (docs/speed.md)
MANY = 10_000


def graph_problem(run: RunConfig) -> str | None:
    """Why the steps of a run cannot be recorded; None: they can, where nothing is padded."""
    augment = run.augment
    if run.machine.devices * run.machine.nodes > 1 or run.machine.strategy == "fsdp":
        return "several processes"
    if augment.crop is None and (augment.fit is None or augment.scale is not None):
        return "images of several sizes; augment.crop gives one"
    for name in (run.model.backbone, run.model.context):
        if ":" in name:  # a replay leaves out what is Python's in a network; ours have nothing
            return f"not tried with {name}"
    return None


class GraphedLoss:
    """loss(images, labels) of a network, recorded for batches of one shape.

    Batches of another shape are computed as they are, and so are all where recording fails: notify
    is called with a line that says why. accumulates: gradients are added up over several batches.
    """

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        network: nn.Module,
        *,
        batch: int,
        size: tuple[int, int],
        accumulates: bool = False,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.loss = loss
        self.network = network
        self.shape = (batch, *size)
        self.accumulates = accumulates
        self.notify = notify
        self.is_usable = True
        self._has_said = False
        self._recording: _Recording | None = None

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        if not self.is_usable or labels.shape != self.shape:
            return self.loss(images, labels)
        if self._recording is None:
            self._record(images, labels)
        recording = self._recording
        if recording is None or recording.images.dtype != images.dtype:
            return self.loss(images, labels)
        recording.images.copy_(images)
        recording.labels.copy_(labels)
        found: Tensor = _Replay.apply(recording.anchor, recording, self.accumulates)
        return found

    def _record(self, images: Tensor, labels: Tensor) -> None:
        try:
            self._recording = _Recording(self.loss, self.network, images, labels)
        except RuntimeError as error:  # also out of memory
            self.is_usable = False
            problem = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.notify(f"no CUDA graphs: {problem}")
        # the error, which holds what failed, is gone here: the loss itself needs the memory
        torch.cuda.empty_cache()

    def pass_over_padded(self) -> None:
        """Say once that padded batches are computed as they are."""
        if self.is_usable and not self._has_said:
            self._has_said = True
            line = "no CUDA graphs for padded batches; --augment.fill mirror leaves nothing padded"
            self.notify(line)

    def renew(self) -> None:
        """Record anew if anything has given the network other memory since."""
        if self._recording is not None and self._recording.places != _places(self.network):
            self._recording = None


class _Recording:
    """Loss and gradients of one batch, and the memory in which they are computed."""

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        network: nn.Module,
        images: Tensor,
        labels: Tensor,
    ) -> None:
        self.images, self.labels = images.clone(), labels.long().clone()
        self.weights = [one for one in network.parameters() if one.requires_grad]
        # gives autograd a reason to call `_Replay.backward`
        self.anchor = torch.zeros((), device=images.device, requires_grad=True)
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self.places = _places(network)

        def compute() -> Tensor:
            # weights that were cast before the recording would stay as they are for good
            with torch.autocast(
                "cuda",
                torch.get_autocast_dtype("cuda"),
                torch.is_autocast_enabled("cuda"),
                cache_enabled=False,
            ):
                return loss(self.images, self.labels)

        self.stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        self.stream.wait_stream(current)
        try:  # the current stream is it again afterwards, also where a recording fails
            with torch.cuda.stream(self.stream):
                self._record(compute, network)
        finally:
            current.wait_stream(self.stream)

    def _record(self, compute: Callable[[], Tensor], network: nn.Module) -> None:
        pool = torch.cuda.graph_pool_handle()
        with _undone_if_it_fails(pool):
            with _no_trace(network):
                for left in reversed(range(WARM_UP)):
                    with _no_waiting(left == 0):
                        self._gradients(compute(), None)
            if _places(network) != self.places:
                raise RuntimeError("the network replaces its buffers")
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved()
            # other threads, such as those of loaders, go on calling CUDA
            how: Any = {"stream": self.stream, "capture_error_mode": "thread_local", "pool": pool}
            with torch.cuda.graph(self.forward, **how):
                value = compute()
            self.push = torch.ones_like(value)
            with torch.cuda.graph(self.backward, **how):
                self.gradients = self._gradients(value, self.push)
            self.value = value.detach()
            # batches that are not replayed, such as the last of an epoch, may need as much again
            held = torch.cuda.memory_reserved() - before
            if held > torch.cuda.mem_get_info()[0]:
                size = f"{held / 2**30:.1f} GiB"
                raise RuntimeError(f"a recorded step holds {size}, and less is left")

    def _gradients(self, value: Tensor, push: Tensor | None) -> list[Tensor | None]:
        """The gradient of each weight, laid out as the weight is: fused optimizers expect it."""
        with torch.autocast("cuda", enabled=False):  # as outside of training_step
            found = torch.autograd.grad(value, self.weights, push, allow_unused=True)
        return [
            one if one is None or one.stride() == own.stride() else torch.empty_like(own).copy_(one)
            for one, own in zip(found, self.weights, strict=True)
        ]


class _Replay(torch.autograd.Function):
    """Replay a recording as a step of autograd, which gives every weight its gradient."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, recording: _Recording, accumulates: bool) -> Tensor:
        ctx.recording, ctx.accumulates = recording, accumulates
        recording.forward.replay()
        return recording.value.clone()  # the next replay writes there again

    @staticmethod
    def backward(ctx: Any, *pushes: Tensor) -> tuple[None, None, None]:
        recording: _Recording = ctx.recording
        recording.push.copy_(pushes[0])
        recording.backward.replay()
        # not by autograd: hundreds of sums of one weight each, and it would hand out the
        # recording's own memory, which must not be added up in
        pairs = [
            (weight, gradient)
            for weight, gradient in zip(recording.weights, recording.gradients, strict=True)
            if gradient is not None
        ]
        added = [(weight.grad, gradient) for weight, gradient in pairs if weight.grad is not None]
        if added:
            torch._foreach_add_([one for one, _ in added], [one for _, one in added])
        for weight, gradient in pairs:
            if weight.grad is None:
                weight.grad = gradient.clone() if ctx.accumulates else gradient
        return None, None, None


def _places(network: nn.Module) -> list[int]:
    """Where weights and buffers lie."""
    return [one.data_ptr() for one in (*network.parameters(), *network.buffers())]


@contextmanager
def _undone_if_it_fails(pool: tuple[int, int]) -> Iterator[None]:
    """Take back what a recording leaves behind that fails within.

    torch (2.11) leaves the device's generator in capture mode, so that nothing could draw from it
    any more, and its allocator too, which then frees no cached memory where it runs out.
    """
    device = torch.cuda.current_device()
    generator = torch.cuda.default_generators[device]
    before = generator.get_state()
    try:
        yield
    except BaseException:
        fresh = torch.Generator(torch.device("cuda", device))
        generator.graphsafe_set_state(fresh.set_state(before))
        with suppress(RuntimeError):  # where it did not fail while it was recorded
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
        raise


@contextmanager
def _no_trace(network: nn.Module) -> Iterator[None]:
    """Undo what happens within: statistics of norms, and random numbers drawn.

    RuntimeError where the host has drawn some: a replay would not.
    """
    buffers = [one.clone() for one in network.buffers()]
    python, numbers = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([torch.cuda.current_device()]):
            drawn = _host_state()
            yield
            if _host_state() != drawn:
                raise RuntimeError("the network draws random numbers on the host")
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        for own, before in zip(network.buffers(), buffers, strict=True):
            own.copy_(before)


def _host_state() -> tuple[Any, ...]:
    """The state of the host's generators of random numbers."""
    numbers: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numbers[1].tobytes(), numbers[2]


@contextmanager
def _no_waiting(wanted: bool) -> Iterator[None]:
    """Make whatever waits for the GPU an error; it could not be recorded, and fails better now."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error" if wanted else before)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
