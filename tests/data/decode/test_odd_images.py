"""Photographs as they come: turned, in other colour spaces, deep, transparent, broken."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from scaseg.data.decode.image import image_size, read_image, rgb
from scaseg.data.decode.metadata import ORIENTATION

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


def test_an_orientation_that_does_not_exist(tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 77
    Image.fromarray(PIXELS).save(tmp_path / "photo.jpg", exif=exif)
    near(read_image(tmp_path / "photo.jpg"), PIXELS)
    assert image_size(tmp_path / "photo.jpg", upright=True) == (24, 40)


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


def test_sixteen_bits_of_colour(tmp_path):
    """Pillow cannot write them: a PNG by hand."""
    # each value twice: 0xabab of 16 bits is 0xab of 8
    rows = b"".join(b"\0" + np.repeat(row[..., None], 2, axis=-1).tobytes() for row in PIXELS)

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 40, 24, 16, 2, 0, 0, 0)
    written = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    written += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    (tmp_path / "photo.png").write_bytes(written)
    np.testing.assert_array_equal(read_image(tmp_path / "photo.png"), PIXELS)


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


def encoded(kind):
    written = io.BytesIO()
    Image.fromarray(PIXELS).save(written, kind)
    return written.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "BMP"])
def test_damaged_files_are_read_or_refused_in_one_line(kind, tmp_path, recwarn):
    """Hundreds of broken files: no other exception than ValueError, no newline in its text."""
    random = np.random.default_rng(0)
    whole = encoded(kind)
    path = tmp_path / "photo.bin"
    said = []
    for trial in range(150):
        data = bytearray(whole)
        if trial % 3 == 0:
            data = data[: int(random.integers(0, len(data)))]
        for _ in range(trial % 7):
            if data:
                data[int(random.integers(0, min(len(data), 200)))] = int(random.integers(256))
        path.write_bytes(data)
        try:
            read_image(path, max_pixels=10_000_000)
        except ValueError as fault:
            said.append(str(fault))
    assert len(said) > 20
    for line in said:
        assert line.startswith(str(path))
        assert "\n" not in line
