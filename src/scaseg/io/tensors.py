"""Tensors on disk: safetensors with a checksum. The only reader of weights; it runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from scaseg.errors import UserError
from scaseg.io.atomic import whole_file
from scaseg.io.paths import unique_keys

CHECKSUM = "scaseg.sha256"
MOST_HEADER = 1 << 25  # bytes; names and shapes of a large network take a hundredth


class DamagedError(UserError):
    """A file that is torn, altered, or no safetensors at all."""


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    notes: Mapping[str, str],
    *,
    previous: Path | None = None,
) -> None:
    """Write tensors and notes: whole or not at all, and proven before they take their place.

    previous: what the file that was there becomes. OSError names the file: a full disk says so of
    the file that was wanted.
    """
    own = _plain(tensors)
    signed = {**notes, CHECKSUM: _checksum(own, notes)}
    try:
        with whole_file(path, previous=previous) as temporary:
            temporary.touch()
            mode = temporary.stat().st_mode & 0o777  # what open() would give a new file here
            save_file(own, temporary, metadata=signed)
            _put_in_order(temporary)
            temporary.chmod(mode)  # safetensors writes for nobody else's eyes
            read_tensors(temporary, signed=True)
    except (OSError, SafetensorError, DamagedError) as error:
        raise OSError(str(DamagedError.cannot_be("written", path, error))) from error


def read_tensors(
    path: Path, *, signed: bool = False, remedy: str = ""
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and notes; DamagedError, with a remedy, where the checksum is wrong.

    Others' files have none; signed: only a file of ours will do.
    """
    with _opened(path, remedy) as file:
        notes = dict(file.metadata() or {})
        # copies: what is mapped from a file changes, or is gone, with the file
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    checksum = notes.pop(CHECKSUM, None)
    if (signed or checksum is not None) and checksum != _checksum(tensors, notes):
        detail = "its checksum does not fit its contents"
        raise DamagedError(path, "is damaged", remedy, detail)
    return tensors, notes


def read_shapes(path: Path, *, remedy: str = "") -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a file, without reading them."""
    with _opened(path, remedy) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[Any]:
    """Open a file; whatever is wrong with it is a DamagedError."""
    try:
        with path.open("rb") as start:
            header = int.from_bytes(start.read(8), "little")
            if header > MOST_HEADER:
                raise ValueError(f"a header of {header} bytes")
            names = start.read(header)
        with safe_open(path, framework="pt") as file:
            # of a key that comes twice the library takes the last, and says nothing
            json.loads(names, object_pairs_hook=unique_keys)
            yield file
    except MemoryError:
        raise
    except Exception as error:  # given a bad header the library raises anything
        raise DamagedError(path, "not a safetensors file", remedy, str(error)) from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and no two in one memory: what the format can hold."""
    plain: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage()
        if storage.data_ptr() in taken or storage.nbytes() != own.nbytes:
            own = own.clone()
        taken.add(own.untyped_storage().data_ptr())
        plain[name] = own
    return plain


def _checksum(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for key in sorted(notes):
        digest.update(repr((key, notes[key])).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        if tensor.numel():  # contiguous, but one element may have any stride
            flat = tensor.as_strided((tensor.numel(),), (1,))
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _put_in_order(path: Path) -> None:
    """Give the notes one order: safetensors has them in another every time.

    So the same tensors and notes are the same bytes, and files can be compared by their hash.
    """
    with path.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(ordered) <= size:  # spaces may follow a header, as they do already
            file.seek(8)
            file.write(ordered.ljust(size))
