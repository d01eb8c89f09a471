"""What a context costs on a map: multiply-adds and memory, counted."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, bmm_flop, sdpa_flop_count

from scaseg.nn.build import build_context
from scaseg.registry import CONTEXTS

# unknown to the counter: one it would take to pieces, of the other see nothing
UNKNOWN = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, values, *_, **__: sdpa_flop_count(query, key, values)
    ),
    torch.ops.aten.baddbmm_: lambda _, *pair, **__: bmm_flop(*pair),
}


def count_cost(
    name: str,
    channels: int,
    height: int,
    width: int,
    *,
    classes: int,
    options: Mapping[str, Any] | None = None,
) -> tuple[int, int]:
    """Return the multiply-adds of a forward pass over one map, and the memory of a training step.

    Multiply-adds are those of convolutions and matrix products. Memory is the most bytes that the
    tensors of a forward and a backward pass hold at once, gradients included, beyond the map and
    the parameters; in float32, as computed on a CPU. A context of order n^2 is traced without
    computing it: the sizes of its tensors follow from their shapes.
    """
    with FakeTensorMode() if CONTEXTS[name].order == "n^2" else nullcontext():
        block = build_context(name, channels, classes=classes, options=options)
        x = torch.zeros(1, channels, height, width, requires_grad=True)
        counter = FlopCounterMode(display=False, custom_mapping=UNKNOWN)
        with torch.enable_grad(), PeakMemory() as memory, counter:
            out = block(x)
            operations = counter.get_total_flops()  # both of a multiply-add
            out.backward(torch.ones_like(out))
    return operations // 2, memory.peak


class PeakMemory(TorchDispatchMode):
    """The most bytes that tensors made meanwhile hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._storages: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._storages:
            return
        self._storages[key] = storage.nbytes()
        self._held += self._storages[key]
        self.peak = max(self.peak, self._held)
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self._held -= self._storages.pop(key)
