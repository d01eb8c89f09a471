"""MATLAB label maps, packed and not, and those that claim more than they hold."""

import numpy as np
import pytest

from scaseg.data.decode.matlab import read_label_map, read_names
from tests.data.strangers import written
from tests.faults.image_seeds import label_map, mat


def test_mat_files_that_are_not_packed_are_read_too(tmp_path):
    values = np.asarray(label_map())
    for dtype in (np.uint8, np.uint16, np.int32, np.float64, np.float32, np.bool_):
        for packed in (True, False):
            path = written(tmp_path / "a.mat", mat(values.astype(dtype), packed=packed))
            np.testing.assert_array_equal(read_label_map(path, "S"), values.astype(dtype))
            assert read_names(path) == ("sky", "tree", "a road")


def test_a_mat_file_that_unpacks_to_much_more_is_refused(tmp_path):
    data = mat(np.zeros((4000, 4000), np.uint8), packed=True)
    assert len(data) < 20_000
    path = written(tmp_path / "bomb.mat", data)
    with pytest.raises(ValueError, match=r"bomb\.mat: .*bytes of it unpacked|at most"):
        read_label_map(path, "S", max_pixels=100_000)
