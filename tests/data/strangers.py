"""Files that strangers send: written, and read or refused in one line."""

import time

import numpy as np
import pytest

from tests.faults.image_seeds import photograph

COLOR = photograph()
PIXELS = np.asarray(COLOR)


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
