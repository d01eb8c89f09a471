"""Photographs and label maps as they come: turned, in other colour spaces, deep, transparent."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from scaseg.data.decode.files import ORIENTATION
from scaseg.data.decode.image import image_size, read_image, read_labels, rgb
from tests.faults.image_seeds import png_by_hand, png_chunk

PIXELS = np.zeros((24, 40, 3), np.uint8)
PIXELS[:, :20] = (200, 40, 40)
PIXELS[:12] += 50  # four different quarters


def near(found, expected, tolerance=12):
    assert found.shape == expected.shape
    assert found.dtype == np.uint8
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.mean() < tolerance, difference.mean()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_every_orientation_is_turned_upright(orientation, suffix, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    # what the camera stored, so that turning it gives PIXELS back
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = Image.fromarray(PIXELS)
    if orientation in turns:
        stored = stored.transpose(turns[orientation])
    path = tmp_path / f"photo{suffix}"
    stored.save(path, exif=exif)
    near(read_image(path), PIXELS)
    assert image_size(path, upright=True) == (24, 40)
    assert image_size(path, upright=False) == ((24, 40) if orientation < 5 else (40, 24))


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("CMYK", ".jpg"),
        ("CMYK", ".tif"),
        ("YCbCr", ".jpg"),
        ("LAB", ".tif"),
        ("P", ".png"),
        ("P", ".tif"),
        ("RGBA", ".png"),
        ("RGBA", ".webp"),
    ],
)
def test_colour_spaces(mode, suffix, tmp_path):
    image = Image.fromarray(PIXELS)
    if mode == "LAB":
        from PIL import ImageCms

        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        image = ImageCms.profileToProfile(image, srgb, lab, outputMode="LAB")
    else:
        image = image.convert(mode)
    image.save(tmp_path / f"photo{suffix}")
    near(read_image(tmp_path / f"photo{suffix}"), PIXELS, 30)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_of_grey_become_eight(suffix, tmp_path):
    ramp = np.linspace(0, 65535, 600).reshape(20, 30).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / f"photo{suffix}")
    expected = np.round(ramp / 257).astype(np.uint8)
    found = read_image(tmp_path / f"photo{suffix}")
    np.testing.assert_array_equal(found, np.repeat(expected[:, :, None], 3, axis=2))


def test_big_endian_too():
    ramp = np.linspace(0, 65535, 600).reshape(20, 30)
    swapped = Image.frombytes("I;16B", (30, 20), ramp.astype(">u2").tobytes())
    np.testing.assert_array_equal(
        rgb(swapped)[..., 0], np.round(ramp.astype(np.uint16) / 257).astype(np.uint8)
    )


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_is_white(mode, tmp_path):
    image = Image.fromarray(PIXELS).convert("RGBA")
    alpha = np.zeros((24, 40), np.uint8)
    alpha[:, 20:] = 255
    image.putalpha(Image.fromarray(alpha))
    image = image.convert(mode)
    found = rgb(image)
    assert (found[:, :20] == 255).all()
    if mode == "RGBA":
        np.testing.assert_array_equal(found[:, 20:], PIXELS[:, 20:])


def test_a_transparent_colour_of_a_palette(tmp_path):
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    image.putpalette([value for index in range(6) for value in (10 * index, 20, 30)])
    image.save(tmp_path / "photo.png", transparency=2)
    found = read_image(tmp_path / "photo.png")
    assert found[0, 2].tolist() == [255, 255, 255]
    assert found[1, 0].tolist() == [30, 20, 30]


@pytest.mark.parametrize("mode", ["L", "1"])
def test_grey_and_black_and_white(mode, tmp_path):
    gray = ImageOps.grayscale(Image.fromarray(PIXELS)).point(lambda value: 255 * (value > 60))
    gray.convert(mode).save(tmp_path / "photo.png")
    expected = np.repeat(np.asarray(gray)[:, :, None], 3, axis=2)
    np.testing.assert_array_equal(read_image(tmp_path / "photo.png"), expected)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_unknown_range_are_refused(mode, tmp_path):
    Image.new(mode, (8, 8), 70000).save(tmp_path / "photo.tif")
    with pytest.raises(ValueError, match=r"photo.tif: . pixels of 32 bits"):
        read_image(tmp_path / "photo.tif")


def test_a_limit_of_pixels(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "photo.png")
    assert read_image(tmp_path / "photo.png", max_pixels=600).shape == (20, 30, 3)
    with pytest.raises(ValueError, match=r"photo.png: 30 x 20 pixels; at most 599 are taken"):
        read_image(tmp_path / "photo.png", max_pixels=599)


def test_sixteen_bits_of_colour(tmp_path):
    """Pillow cannot write them: a PNG by hand."""
    (tmp_path / "photo.png").write_bytes(png_by_hand(PIXELS, depth=16))
    np.testing.assert_array_equal(read_image(tmp_path / "photo.png"), PIXELS)


def white_is_zero(path, values):
    """Write a TIFF of these values, whatever Pillow makes of them, that says so."""
    Image.fromarray(values).save(path)
    data = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    entries = range(at + 2, at + 2 + 12 * count, 12)
    [entry] = [one for one in entries if struct.unpack_from("<H", data, one) == (262,)]
    struct.pack_into("<H", data, entry + 8, 0)
    path.write_bytes(data)


@pytest.mark.parametrize(("dtype", "orientation"), [("uint8", 1), ("uint16", 1), ("uint16", 3)])
def test_photographs_whose_zero_is_white(dtype, orientation, tmp_path):
    """Pillow turns 8 bits over, and not 16: they were negatives."""
    most = np.iinfo(dtype).max
    white_is_zero(tmp_path / "a.tif", np.array([[0, most // 5, most]], dtype))
    with Image.open(tmp_path / "a.tif") as image:
        image.load()
        exif = image.getexif()
        exif[ORIENTATION] = orientation
        found = rgb(image)[..., 0].tolist()
    assert found == [[255, 204, 0][:: 1 if orientation == 1 else -1]]
    assert read_image(tmp_path / "a.tif")[..., 0].tolist() == [[255, 204, 0]]


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_labels_whose_zero_is_white_are_refused(dtype, tmp_path):
    """Class 1 was 254, of 16 bits 1."""
    white_is_zero(tmp_path / "a.tif", np.array([[0, 1, 2]], dtype))
    with pytest.raises(
        ValueError, match=r"a\.tif: a grey label map in which white is 0; save it as"
    ):
        read_labels(tmp_path / "a.tif")


def test_of_two_valued_labels_white_is_one(tmp_path):
    white_is_zero(tmp_path / "a.tif", np.array([[False, True, True]]))
    Image.fromarray(np.array([[True, False, False]])).save(tmp_path / "b.tif")
    for name in "ab":
        assert read_labels(tmp_path / f"{name}.tif").tolist() == [[1, 0, 0]]


def test_labels_of_8_and_16_bit_and_palette(tmp_path):
    small = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(small).save(tmp_path / "grey.png")
    large = small.astype(np.uint16) * 40
    Image.fromarray(large).save(tmp_path / "wide.png")
    palette = Image.fromarray(small, mode=None).convert("P")
    palette.putpalette([value for i in range(256) for value in (255 - i, i, 7)])
    palette.putdata(small.flatten().tolist())
    palette.save(tmp_path / "palette.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "grey.png"), small)
    np.testing.assert_array_equal(read_labels(tmp_path / "wide.png"), large)
    np.testing.assert_array_equal(read_labels(tmp_path / "palette.png"), small)


def test_what_cannot_be_labels_is_refused(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "rgb.png")
    Image.new("L", (4, 4)).save(tmp_path / "lossy.jpg")
    with pytest.raises(ValueError, match=r"rgb.png: a RGB label map; give one channel"):
        read_labels(tmp_path / "rgb.png")
    with pytest.raises(ValueError, match=r"lossy.jpg: a JPEG label map"):
        read_labels(tmp_path / "lossy.jpg")


@pytest.mark.parametrize(("bits", "read_as"), [(2, 85), (4, 17)])
def test_grey_labels_of_few_bits_are_refused(bits, read_as, tmp_path):
    """Pillow spreads them to 0 to 255: of 2 bits, class 3 was unlabelled."""
    rows = np.full((8, 9), 0x1B, np.uint8)  # 0 1 2 3, or 1 11
    rows[:, 0] = 0  # no filter
    header = struct.pack(">IIBBBBB", 64 // bits, 8, bits, 0, 0, 0, 0)
    body = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows.tobytes()))
    data = b"\x89PNG\r\n\x1a\n" + body + png_chunk(b"IEND", b"")
    (tmp_path / "few.png").write_bytes(data)
    said = (
        f"few.png: a grey label map of {bits} bits; save it with 8: some tools read 1 as {read_as}"
    )
    with pytest.raises(ValueError, match=said):
        read_labels(tmp_path / "few.png")


def test_what_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "text.png").write_text("hello")
    Image.new("RGB", (64, 64)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    for name, message in (("text", "not an image"), ("cut", "cannot be read"), ("no", "no such")):
        with pytest.raises(ValueError, match=message) as refused:
            read_image(tmp_path / f"{name}.png")
        assert f"{name}.png" in str(refused.value)
        assert "\n" not in str(refused.value)
