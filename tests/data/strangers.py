"""Files that strangers send: written, and read or refused in one line."""

import struct
import time

import numpy as np
import pytest

from tests.faults.image_seeds import photograph, png_chunk, saved

COLOR = photograph()
PIXELS = np.asarray(COLOR)


def png_parts(data):
    """Take a PNG apart: (kind, body) of each chunk."""
    at, found = 8, []
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def png_of(parts):
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts)


def png_with(kind, body, *, after=False):
    parts = png_parts(saved(COLOR, "PNG"))
    parts.insert(len(parts) - 1 if after else 1, (kind, body))
    return png_of(parts)


def written(path, data):
    path.write_bytes(data)
    return path


def refused(read, path, *words, **options):
    """Read, and return the one line that says why not."""
    began = time.process_time()
    with pytest.raises(ValueError, match=": ") as fault:
        read(path, **options)
    said = str(fault.value)
    assert said.isprintable()
    assert "; " in said or "no such file" in said or "not an image" in said
    for word in words:
        assert word in said
    assert time.process_time() - began < 2
    return said
