"""Photographs that are more than red, green and blue of 8 bits."""

import numpy as np
from PIL import Image

from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import check_data
from tests.data.validation.spoilt import lines
from tests.data.validation.spoilt import root as root  # a fixture
from tests.faults.catalogue import LIGHT


def test_a_fourth_band_is_not_taken_for_transparency_unsaid(root):
    """Near infrared, of aerial pictures: white shone through, and nobody said so."""
    for path in (root / "images").iterdir():
        pixels = np.asarray(Image.open(path).convert("RGB"))
        opaque = np.full_like(pixels[..., :1], 255)
        Image.fromarray(np.dstack([pixels, opaque])).save(path.with_suffix(".tif"))
        path.unlink()
    assert not check_data(FolderDataset, root).findings
    for path in (root / "images").iterdir():
        pixels = np.asarray(Image.open(path))
        Image.fromarray(np.dstack([pixels[..., :3], 200 - pixels[..., 0] // 2])).save(path)
    [said] = lines(check_data(FolderDataset, root).warnings)
    assert "partly transparent: 5 of 5 photographs, taken as over white; where the fourth" in said
    assert said.endswith("read all four with --data.bands 4")
    assert not check_data(FolderDataset, root, bands=4).findings


def test_photographs_of_more_bits_than_eight(root, capsys):
    """12 bits of a microscope's camera in a file of 16: as photographs they had 9 greys."""
    images = sorted((root / "images").iterdir())
    assert not [line for line in lines(check_data(FolderDataset, root).warnings) if "black" in line]
    for path in images:
        grey = np.asarray(Image.open(path).convert("L")).astype(np.uint16) * 9
        Image.fromarray(grey).save(path.with_suffix(".png"))
        path.unlink()
    [said] = [line for line in lines(check_data(FolderDataset, root).warnings) if "black" in line]
    assert f"nearly black: {len(images)} of {len(images)} photographs have no value above" in said
    assert said.endswith("files of 12 or 16 bits are read whole with --data.bands 1 (or 3, ...)")
    train = ("train", *LIGHT, "--context", "sca", "--data", str(root), "--epochs", "1")
    main([*train, "--out", str(root / "run")])
    assert f"note: {said}" in capsys.readouterr().err
    assert check_data(FolderDataset, root, bands=1).warnings == ()
