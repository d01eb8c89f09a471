"""Launch kernels without Triton's own search for the compiled one, which takes most of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_COMPILED: dict[Any, Any] = {}
MOST_COMPILED = 4096


class Piece(NamedTuple):
    """Part of a float32 buffer as a kernel's argument: one allocation serves many."""

    address: int
    buffer: Tensor
    offset: int
    dtype: torch.dtype

    @staticmethod
    def of(buffer: Tensor, offset: int, dtype: torch.dtype = torch.float32) -> Piece:
        """The buffer from an element on."""
        return Piece(buffer.data_ptr() + 4 * offset, buffer, offset, dtype)

    def tensor(self) -> Tensor:
        """The buffer from here on."""
        return self.buffer.view(-1)[self.offset :].view(self.dtype)


Pointer = Tensor | Piece


class Cut(NamedTuple):
    """Where pieces of a float32 buffer start, what they hold, and how many elements it has."""

    starts: tuple[tuple[int, torch.dtype], ...]
    total: int

    @staticmethod
    def into(*sizes: int | tuple[int, torch.dtype]) -> Cut:
        """Pieces of these sizes, each at a multiple of 128 bytes; float32 unless another is given.

        The sizes of others are in elements of the buffer as well.
        """
        starts, total = [], 0
        for one in sizes:
            size, dtype = one if isinstance(one, tuple) else (one, torch.float32)
            starts.append((total, dtype))
            total += -(-size // 32) * 32
        return Cut(tuple(starts), total)

    def of(self, buffer: Tensor) -> list[Piece]:
        """The pieces of such a buffer."""
        start = buffer.data_ptr()
        return [Piece(start + 4 * at, buffer, at, dtype) for at, dtype in self.starts]


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    pointers: Sequence[Pointer],
    sized: tuple[int, ...],
    plain: tuple[float, ...],
    constants: dict[str, Any],
    *,
    dtypes: tuple[torch.dtype, ...],
    warps: int = 4,
    stages: int = 3,
) -> None:
    """Run a kernel on the tensors' device; its arguments are in this order.

    Triton compiles one for each of: `dtypes` of the pointers that vary; whether pointers and
    `sized` numbers are divisible by 16, 1, or larger than 32 bits; the constants. `plain` numbers
    make no difference.
    """
    first = pointers[0]
    place = first.buffer.device if type(first) is Piece else first.device  # type: ignore[union-attr]
    if place.type != "cuda":  # the interpreter
        tensors = [one.tensor() if isinstance(one, Piece) else one for one in pointers]
        kernel[grid](*tensors, *sized, *plain, **constants)
        return
    index = place.index
    if index != torch._C._cuda_getDevice():
        options: dict[str, Any] = {"dtypes": dtypes, "warps": warps, "stages": stages}
        with torch.cuda.device(place):
            launch(kernel, grid, pointers, sized, plain, constants, **options)
        return
    addresses = [
        one.address if type(one) is Piece else one.data_ptr()  # type: ignore[union-attr]
        for one in pointers
    ]
    joined = 0
    for address in addresses:
        joined |= address
    odd = tuple(address % 16 for address in addresses) if joined % 16 else ()
    # by the numbers themselves, of which few kinds occur: cheaper than what Triton derives. The
    # constants are kept with the entry, so that no others can get their id
    key = (id(kernel), id(constants), index, dtypes, odd, sized)
    found = _COMPILED.get(key)
    if found is None:
        tensors = [one.tensor() if isinstance(one, Piece) else one for one in pointers]
        shape: dict[str, Any] = {"num_warps": warps, "num_stages": stages}
        compiled = kernel[grid](*tensors, *sized, *plain, **constants, **shape)
        names = kernel.arg_names[len(pointers) + len(sized) + len(plain) :]
        if len(_COMPILED) >= MOST_COMPILED:
            _COMPILED.clear()
        values = tuple(constants[name] for name in names)
        _COMPILED[key] = *_launcher(compiled), values, constants
        return
    run, about, values, _ = found
    stream = torch._C._cuda_getCurrentRawStream(index)
    run(*grid, stream, *about, *addresses, *sized, *plain, *values)


def _launcher(compiled: Any) -> tuple[Any, tuple[Any, ...]]:
    """What compiled[grid](...) calls, without its hooks, and its arguments after the stream."""
    from triton import __version__ as version

    run, about = compiled.run, (compiled.packed_metadata, None, None, None)
    scratch = getattr(run, "global_scratch_size", 1), getattr(run, "profile_scratch_size", 1)
    if not version.startswith("3.6.") or scratch != (0, 0):
        return run, (compiled.function, *about)
    # the C function itself: `run` would ask for scratch memory that is not needed
    flags = run.launch_cooperative_grid, run.launch_pdl, None, None
    return run.launch, (compiled.function, *flags, *about)
