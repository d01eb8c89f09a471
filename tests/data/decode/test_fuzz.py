"""A short run of tests/faults/fuzz_images.py: other seeds than the long one's, every format."""

import sys

import pytest

from tests.faults.fuzz_images import case_bytes, examine
from tests.faults.image_seeds import seeds

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is measured as Linux shows it"
)


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    files = seeds()
    outcomes = []
    for case in range(20 * len(files)):
        name, data = case_bytes(files, "short", case)
        found, findings, _, _ = examine(name, data, tmp_path / "file.bin")
        assert not findings, (case, name, findings)
        outcomes += found
    assert outcomes.count("read") > 500  # the damage is not always fatal
    assert outcomes.count("refused") > 500


@pytest.mark.parametrize("name", sorted(seeds()))
def test_the_sound_files_are_sound(name, tmp_path):
    outcomes, findings, _, _ = examine(name, seeds()[name], tmp_path / "file.bin")
    assert not findings
    assert outcomes[:2] == (["read", "refused"] if name == "mat double" else ["read", "read"])
