"""Metadata of strangers' images: an orientation wherever it stands, and nothing else of it."""

import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest

from scaseg.data.decode.files import ORIENTATION
from scaseg.data.decode.image import image_size, read_image, read_labels
from tests.data.strangers import COLOR, PIXELS, png_with, refused, written
from tests.faults.image_seeds import exif, saved


def with_segment(data, code, body):
    return data[:2] + bytes([0xFF, code]) + struct.pack(">H", len(body) + 2) + body + data[2:]


def tiff_exif(orientation, *, kind=3):
    """The smallest EXIF: one entry."""
    return b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", ORIENTATION, kind, 1, orientation, 0)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(100 << 20))),
        (b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(bytes(20 << 20))),
        (b"iCCP", b"profile\0\0" + zlib.compress(bytes(20 << 20))),
        (b"iCCP", b"profile\0\0not packed at all"),
        (b"iCCP", b"profile\0\7"),
        (b"tEXt", b"Comment\0" + b"x" * (5 << 20)),
        (b"eXIf", bytes(5 << 20)),
        (b"acTL", b""),
        (b"gAMA", b""),
    ],
)
def test_texts_and_profiles_of_any_size_are_passed_over(kind, body, tmp_path):
    path = written(tmp_path / "photo.png", png_with(kind, body))
    began = time.process_time()
    np.testing.assert_array_equal(read_image(path), PIXELS)
    assert time.process_time() - began < 0.5  # nothing of it was unpacked


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("profile", [b"garbage", bytes(3000)])
def test_a_damaged_colour_profile_does_not_matter(kind, profile, tmp_path):
    path = written(tmp_path / "photo", saved(COLOR, kind, icc_profile=profile))
    sound = written(tmp_path / "sound", saved(COLOR, kind))
    np.testing.assert_array_equal(read_image(path), read_image(sound))


@pytest.mark.parametrize(
    "block",
    [
        b"Exif\0\0",
        b"Exif\0\0II*\0",
        b"Exif\0\0" + tiff_exif(6)[:14],
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0" + tiff_exif(99),
        b"Exif\0\0" + tiff_exif(6, kind=2),
        b"Exif\0\0MM" + tiff_exif(6)[2:],
        # 5000 entries that all are the whole block, for whoever copies them
        b"Exif\0\0II*\0\x08\0\0\0"
        + struct.pack("<H", 5000)
        + b"".join(struct.pack("<HHII", 1000 + tag, 7, 60_000, 0) for tag in range(5000)),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_damaged_exif_is_no_orientation(block, kind, tmp_path):
    sound = written(tmp_path / "sound", saved(COLOR, kind))
    if kind == "JPEG":
        data = with_segment(sound.read_bytes(), 0xE1, block)
    else:
        data = png_with(b"eXIf", block.removeprefix(b"Exif\0\0"))
    path = written(tmp_path / "photo", data)
    np.testing.assert_array_equal(read_image(path), read_image(sound))
    assert image_size(path, upright=True) == PIXELS.shape[:2]


RAW = "\nexif\n      {}\n{}\n".format(len(tiff_exif(6)), (b"Exif\0\0" + tiff_exif(6)).hex())
XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


@pytest.mark.parametrize(
    "data",
    [
        png_with(b"eXIf", tiff_exif(6)),
        png_with(b"eXIf", tiff_exif(6), after=True),  # behind the pixels
        png_with(b"tEXt", b"Raw profile type exif\0" + RAW.encode()),
        png_with(b"zTXt", b"Raw profile type APP1\0\0" + zlib.compress(RAW.encode())),
        png_with(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP),
        with_segment(saved(COLOR, "JPEG"), 0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP),
        with_segment(saved(COLOR, "JPEG"), 0xE1, b"Exif\0\0" + tiff_exif(6)),
    ],
)
def test_wherever_the_orientation_stands_it_is_found(data, tmp_path):
    path = written(tmp_path / "photo", data)
    height, width = PIXELS.shape[:2]
    assert read_image(path).shape == (width, height, 3)
    assert image_size(path, upright=True) == (width, height)
    assert image_size(path, upright=False) == (height, width)


def test_metadata_beyond_the_first_read_of_a_header(tmp_path):
    data = saved(COLOR, "JPEG")
    for _ in range(8):  # half a megabyte
        data = with_segment(data, 0xE2, bytes(65_000))
    path = written(tmp_path / "photo.jpg", with_segment(data, 0xE1, b"Exif\0\0" + tiff_exif(8)))
    assert image_size(path, upright=True) == PIXELS.shape[1::-1]
    assert read_image(path).shape == (PIXELS.shape[1], PIXELS.shape[0], 3)


def tiff_of(entries, size=60_000):
    """A grey TIFF of 8 x 8 pixels at 50,000; entries: further ones of its directory."""
    own = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries = [*own, (273, 4, 1, 50_000), (278, 4, 1, 8), (279, 4, 1, 64), *entries]
    data = b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries))
    data += b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return data.ljust(size, b"\0")


def test_a_tiff_whose_entries_share_data_is_refused(tmp_path):
    shared = [(1000 + tag, 7, 50_000, 8) for tag in range(3000)]
    words = "its directories claim more data than the file has"
    refused(read_image, written(tmp_path / "a.tif", tiff_of(shared)), words)
    many = [(1000 + tag, 3, 1, 0) for tag in range(50_000)]
    refused(read_image, written(tmp_path / "b.tif", tiff_of(many, 700_000)), words)
    cut = [(1000, 7, 50_000, 59_000)]
    refused(read_labels, written(tmp_path / "c.tif", tiff_of(cut)), words)


def test_exif_and_gps_of_a_tiff_are_not_read(tmp_path):
    """Directories of 4,000 entries that are 50 kB each."""
    bomb = b"".join(struct.pack("<HHII", tag, 7, 50_000, 8) for tag in range(4000))
    data = tiff_of([(0x8769, 4, 1, 60_000), (0x8825, 4, 1, 60_000)])
    path = written(tmp_path / "a.tif", data + struct.pack("<H", 4000) + bomb)
    tracemalloc.start()
    try:
        assert read_image(path).shape == (8, 8, 3)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


# JPEGs as phones, printers and attackers write them


def test_exif_of_a_camera_is_read_in_every_format(tmp_path):
    for kind in ("JPEG", "PNG", "TIFF", "WEBP"):
        path = written(tmp_path / kind, saved(COLOR, kind, exif=exif()))
        assert image_size(path, upright=True) == (53, 37), kind
        assert image_size(path, upright=False) == (37, 53), kind
        assert read_image(path).shape == (53, 37, 3), kind
