"""Images of any number of bands: what GDAL and NumPy wrote, and what is refused.

The files in gdal/ were written by rasterio 1.4.4 (GDAL 3.10.3): band b of pixel (x, y) is
100 b + 3 x + y.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scaseg.data.decode.bands import band_header, picture, read_bands, read_pixels
from scaseg.errors import UserError

GDAL = Path(__file__).parent / "gdal"
Y, X, B = np.mgrid[:20, :35, :5]
PLANTED = 100 * B + 3 * X + Y


@pytest.mark.parametrize(
    "name", ["uint16_lzw_tiles", "float32_deflate_planes", "int16_zstd_bigtiff"]
)
def test_files_of_gdal_are_read_pixel_for_pixel(name):
    path, dtype = GDAL / f"{name}.tif", name.partition("_")[0]
    assert band_header(path) == (20, 35, 5, dtype)
    pixels = read_bands(path, 5, dtype)
    assert pixels.dtype == np.float32
    assert (pixels == PLANTED).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float64"])
def test_arrays_are_read_as_they_are(tmp_path, dtype):
    for number, array in enumerate((PLANTED // 3, np.asfortranarray(PLANTED // 3))):
        np.save(tmp_path / f"{number}.npy", array.astype(dtype))
        pixels = read_bands(tmp_path / f"{number}.npy", 5, dtype)
        assert pixels.dtype == (np.uint8 if dtype == "uint8" else np.float32)
        assert (pixels == (PLANTED // 3).astype(dtype)).all()


@pytest.mark.parametrize(("bands", "mode"), [(1, "L"), (2, "LA"), (4, "RGBA")])
def test_bands_of_a_png_are_no_transparency(tmp_path, bands, mode):
    values = (PLANTED // 3).astype(np.uint8)[:, :, :bands]
    Image.fromarray(values.squeeze(), mode).save(tmp_path / "a.png")
    assert (read_bands(tmp_path / "a.png", bands) == values).all()


def test_a_photograph_is_rgb_whatever_it_is(tmp_path):
    Image.fromarray(np.full((4, 5), 7, np.uint8)).save(tmp_path / "a.png")
    assert (read_pixels(tmp_path / "a.png", None) == np.full((4, 5, 3), 7)).all()
    assert read_pixels(tmp_path / "a.png", 1).shape == (4, 5, 1)


@pytest.mark.parametrize(
    ("array", "wanted", "message"),
    [
        (
            np.zeros((4, 5, 3), np.uint8),
            (5,),
            "a.npy: has 3 bands of uint8; give an",
        ),
        (
            np.zeros((4, 5), np.uint8),
            (5,),
            "a.npy: has 1 band of uint8; give .* 5 b",
        ),
        (np.zeros((4, 5, 5), np.uint8), (5, "uint16"), "has 5 bands of uint8; give .* of uint16"),
        (np.full((4, 5, 1), np.nan), (1,), "a.npy: has pixels that are not finite; fill them"),
        (np.full((4, 5, 1), 1e300), (1,), "a.npy: has pixels that are not finite"),
        (np.zeros((2, 4, 5, 1)), (1,), r"an array of shape \(2, 4, 5, 1\), float64; give \(height"),
        (np.zeros((4, 5, 1), complex), (1,), "complex128; give"),
        (np.array([[["a"]]]), (1,), "an array of shape"),
        (np.zeros((0, 5, 1)), (1,), "cannot be read"),
        (np.array([[[None]]]), (1,), "an array of shape"),  # an object: a pickle, never opened
    ],
)
def test_other_arrays_are_refused(tmp_path, array, wanted, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(UserError, match=message):
        read_bands(tmp_path / "a.npy", *wanted)


def damaged(change):
    data = bytearray((GDAL / "uint16_lzw_tiles.tif").read_bytes())
    change(data)
    return bytes(data)


def set_tag(tag, value):
    """Give the value of a tag that lies in the directory itself another value."""

    def change(data):
        (start,) = struct.unpack_from("<I", data, 4)
        (count,) = struct.unpack_from("<H", data, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            if struct.unpack_from("<H", data, at)[0] == tag:
                struct.pack_into("<HI", data, at + 2, 4, 1)
                struct.pack_into("<I", data, at + 8, value)
                return
        raise KeyError(tag)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.__delitem__(slice(-400, None)), "cannot be read"),
        (set_tag(256, 2**31), "cannot be read"),
        (set_tag(277, 60_000), "cannot be read|bands of"),
        (set_tag(322, 2**30), "cannot be read"),
        (set_tag(323, 0), "cannot be read"),
        (set_tag(259, 7), "a TIFF of JPEG"),
        (set_tag(259, 9999), "cannot be read"),
    ],
)
def test_a_damaged_tiff_is_refused_in_one_line(tmp_path, change, message):
    (tmp_path / "a.tif").write_bytes(damaged(change))
    with pytest.raises(UserError, match=message) as raised:
        read_bands(tmp_path / "a.tif", 5)
    assert "\n" not in str(raised.value)


def test_bands_count_against_the_limit_of_pixels(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((10, 10, 30), np.float32))
    with pytest.raises(UserError, match=r"30 bands of 10 x 10 pixels; 800 bytes are taken, raise"):
        read_bands(tmp_path / "a.npy", 30, max_pixels=100)
    assert read_bands(tmp_path / "a.npy", 30, max_pixels=2000).shape == (10, 10, 30)


def test_people_see_the_first_three_bands_stretched():
    photograph = (PLANTED[:, :, :3] // 3).astype(np.uint8)
    assert picture(photograph) is photograph
    shown = picture(PLANTED.astype(np.float32))
    assert shown.dtype == np.uint8
    assert shown.shape == (20, 35, 3)
    assert (shown[..., 0] == shown[..., 2]).all()  # they differ by a constant alone
    assert (shown.min(), shown.max()) == (0, 255)
    gray = picture(PLANTED[:, :, :2].astype(np.uint8))
    assert gray.shape == (20, 35, 3)
    assert (gray[..., 0] == gray[..., 1]).all()
    assert not picture(np.zeros((3, 4, 1), np.float32)).any()
