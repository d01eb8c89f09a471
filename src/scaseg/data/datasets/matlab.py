"""Label maps in MATLAB's .mat files; scipy, which reads them, is imported only then."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

HEADER, TAG, COMPRESSED = 128, 8, 15  # of MATLAB 5 files: bytes, bytes, and a type


def require_scipy(path: Path) -> Any:
    """Return scipy.io; ValueError says how to get it. path: what is to be read."""
    try:
        # `import scipy.io`, not `from scipy.io import`: the latter finds a loaded submodule even
        # where scipy itself cannot be imported
        import scipy.io  # type: ignore[import-untyped]
    except ImportError as fault:
        raise ValueError(
            f"{path}: reading .mat files needs scipy; pip install 'scaseg[data]'"
        ) from fault
    return scipy.io


def read_key(path: Path, key: str) -> NDArray[Any]:
    """Read one variable of a .mat file; ValueError names the file and the fault in one line."""
    scipy_io = require_scipy(path)
    try:
        content = path.read_bytes()
        _require_whole(content)
        found = scipy_io.loadmat(BytesIO(content), variable_names=[key])
        there = () if key in found else scipy_io.whosmat(BytesIO(content))
    except FileNotFoundError as fault:
        raise ValueError(f"{path}: no such file") from fault
    except NotImplementedError as fault:
        raise ValueError(f"{path}: of MATLAB 7.3 (HDF5); save it again with -v7") from fault
    except Exception as fault:  # a torn file fails anywhere in scipy, with any kind of exception
        said = " ".join(str(fault).split()) or type(fault).__name__
        raise ValueError(f"{path}: cannot be read ({said}); fetch it again") from fault
    if key not in found:
        others = ", ".join(name for name, _, _ in there) or "nothing"
        raise ValueError(f"{path}: has no {key}, but {others}; is it a label map?")
    return np.asarray(found[key])


def _require_whole(content: bytes) -> None:
    """Refuse a MATLAB 5 file that is cut off or damaged, before scipy sees it.

    scipy trusts what it unpacks: a damaged variable can end the process with a segmentation fault
    (seen with 1.17.1). Each variable is a tag of two 4-byte words, its type and its length, and,
    as MATLAB saves it, a zlib stream, whose checksum tells.
    """
    order: Literal["little", "big"] = "big" if content[126:128] == b"MI" else "little"
    if int.from_bytes(content[124:126], order) != 0x0100:
        return  # another version: scipy reads or refuses it
    at = HEADER
    while at + TAG <= len(content):
        kind = int.from_bytes(content[at : at + 4], order)
        end = at + TAG + int.from_bytes(content[at + 4 : at + TAG], order)
        if end > len(content):
            raise EOFError(f"it ends after {len(content)} bytes, within a variable")
        if kind == COMPRESSED:
            stream = zlib.decompressobj()
            stream.decompress(content[at + TAG : end])
            if not stream.eof:
                raise EOFError("a variable ends too early")
        at = end


def read_label_map(path: Path, key: str) -> NDArray[np.int32]:
    """Read a variable as (H, W) whole numbers, wide enough for arithmetic: files hold uint8."""
    values = read_key(path, key)
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "iufb":
        raise ValueError(
            f"{path}: {key} is {values.dtype} of shape {values.shape}; a label map has a number "
            "a pixel, height x width"
        )
    with np.errstate(invalid="ignore"):  # NaN: told below
        whole = values.astype(np.int32)
    if not np.array_equal(whole, values):  # MATLAB's default type is double
        raise ValueError(f"{path}: {key} holds fractions; class ids are whole numbers")
    return whole


def read_names(path: Path) -> tuple[str, ...]:
    """Read the cell array `names`, in whichever direction it lies."""
    cells = read_key(path, "names").ravel()
    return tuple("".join(str(part) for part in np.asarray(cell).ravel()).strip() for cell in cells)
