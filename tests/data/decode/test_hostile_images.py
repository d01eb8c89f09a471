"""Files that strangers send: each is read as a user would want, or refused in one line."""

import io
import struct
import threading
import tracemalloc
import warnings
import zlib
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from PIL import Image

from scaseg.data.decode.files import MAX_PIXELS
from scaseg.data.decode.image import image_size, read_image, read_labels
from scaseg.data.decode.matlab import read_label_map
from tests.data.strangers import COLOR, PIXELS, png_of, png_with, refused, written
from tests.faults.image_seeds import label_map, mat, saved, seeds


def png_header(width, height):
    body = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return png_of([(b"IHDR", body), (b"IDAT", zlib.compress(b"\0" * 99)), (b"IEND", b"")])


def taller_tiff(image, height):
    """Claim another height in the header."""
    data = saved(image, "TIFF")
    entry = struct.pack("<HHII", 257, 4, 1, height)
    for kind in (3, 4):
        data = data.replace(struct.pack("<HHII", 257, kind, 1, image.height), entry)
    assert entry in data
    return data


# What is no file of bytes


BOMBS = {
    "PNG": png_header(50_000, 50_000),
    "JPEG": saved(COLOR, "JPEG").replace(
        struct.pack(">HH", *PIXELS.shape[:2]), struct.pack(">HH", 65_500, 65_500)
    ),
    "BMP": b"BM" + struct.pack("<IHHIIiiHH", 99, 0, 0, 54, 40, 50_000, 50_000, 1, 24) + b"\0" * 24,
    "TIFF": taller_tiff(COLOR, 10_000_000),
    # the decoder allocates this canvas when it opens the file
    "WEBP": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\xff\xff\0\0",
}


@pytest.mark.parametrize("kind", BOMBS)
def test_more_pixels_than_the_limit_are_refused_before_they_are_decoded(kind, tmp_path):
    path = written(tmp_path / "bomb", BOMBS[kind])
    for read in (read_image, read_labels):
        said = refused(read, path, f"at most {MAX_PIXELS} are taken, raise --max-pixels")
        assert " x " in said
    refused(image_size, path, "at most", upright=True)


def test_label_maps_have_the_same_limit(tmp_path):
    label_map().save(tmp_path / "labels.png")  # 36 x 51
    assert read_labels(tmp_path / "labels.png", max_pixels=36 * 51).shape == (36, 51)
    refused(read_labels, tmp_path / "labels.png", "at most 1835", max_pixels=36 * 51 - 1)
    values = np.asarray(label_map())
    path = written(tmp_path / "labels.mat", mat(values, packed=True))
    np.testing.assert_array_equal(read_label_map(path, "S", max_pixels=36 * 51), values)
    with pytest.raises(ValueError, match="51 x 36 pixels; at most 1835 are taken"):
        read_label_map(path, "S", max_pixels=36 * 51 - 1)


def test_a_photograph_of_12000_by_9000_is_within_the_usual_limit(tmp_path):
    path = written(tmp_path / "large.png", png_header(12_000, 9_000))
    assert image_size(path, upright=True) == (9_000, 12_000)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
def test_pillows_own_limit_neither_refuses_nor_warns(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # it warns above, and refuses above 200
    path = written(tmp_path / "photo", saved(COLOR, kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        threads = [threading.Thread(target=read_image, args=(path,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read_image(path).shape == PIXELS.shape
        assert warnings.filters == before
    assert Image.MAX_IMAGE_PIXELS == 100


@pytest.mark.parametrize("kind", [b"IDAT", b"PLTE", b"zTXt"])
def test_a_chunk_that_claims_gigabytes_gets_no_room_for_them(kind, tmp_path):
    data = bytearray(png_with(kind, bytes(9)))
    at = data.index(kind) - 4
    data[at : at + 4] = b"\xff\xff\xff\xf0"
    tracemalloc.start()
    try:
        refused(read_image, written(tmp_path / "photo.png", data), "photo.png: ")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_file_much_larger_than_its_pixels_can_be_is_not_read(tmp_path):
    with open(tmp_path / "photo.jpg", "wb") as file:
        file.write(saved(COLOR, "JPEG"))
        file.truncate(100_000_000)  # a hole: it takes no room
    refused(read_image, tmp_path / "photo.jpg", "100000000 bytes; at most", max_pixels=2000)
    assert read_image(tmp_path / "photo.jpg", max_pixels=5_000_000).shape == PIXELS.shape
    refused(image_size, tmp_path / "photo.jpg", "at most", upright=True, max_pixels=2000)
    read = partial(read_label_map, key="S")
    refused(read, tmp_path / "photo.jpg", "100000000 bytes; at most", max_pixels=2000)


@pytest.mark.parametrize("name", [n for n in sorted(seeds()) if not n.startswith("mat")])
def test_large_photographs_are_converted_in_bands_to_the_same_pixels(name, tmp_path, monkeypatch):
    path = written(tmp_path / "photo", seeds()[name])
    whole = read_image(path)
    monkeypatch.setattr("scaseg.data.decode.image.BAND", 300)
    np.testing.assert_array_equal(read_image(path), whole)


# What is damaged


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_is_cut_off_is_refused(kind, share, tmp_path):
    data = saved(COLOR, kind)
    refused(read_image, written(tmp_path / "cut", data[: int(share * len(data))]), "cut: ")


def test_checksums_of_pixels_count_and_those_of_comments_do_not(tmp_path):
    for kind, fits in ((b"IDAT", False), (b"IHDR", False), (b"tEXt", True)):
        data = bytearray(png_with(b"tEXt", b"Comment\0hello"))
        at = data.index(kind)
        length = struct.unpack_from(">I", data, at - 4)[0]
        data[at + 4 + length] ^= 1
        path = written(tmp_path / "photo.png", data)
        if fits:
            np.testing.assert_array_equal(read_image(path), PIXELS)
        else:
            refused(read_image, path, f"its {kind.decode()} chunk is damaged, the checksum is")


def test_a_tiff_without_some_of_its_strips_is_not_filled_with_class_0(tmp_path):
    data = taller_tiff(label_map(), 360)
    refused(read_labels, written(tmp_path / "a.tif", data), "some of its pixels are missing")


# What was packed beside the pixels


def test_a_phones_mpo_is_its_first_picture(tmp_path):
    data = saved(COLOR, "MPO", save_all=True, append_images=[COLOR.rotate(180)])
    alone = written(tmp_path / "alone.jpg", saved(COLOR, "JPEG"))
    for name in ("phone.jpg", "phone.mpo"):
        path = written(tmp_path / name, data)
        np.testing.assert_array_equal(read_image(path), read_image(alone))
        refused(read_labels, path, "a JPEG label map; its values are blurred")
    film = written(
        tmp_path / "motion.jpg", alone.read_bytes() + b"\0\0\0\x18ftypmp42\xff\xda" * 999
    )
    np.testing.assert_array_equal(read_image(film), read_image(alone))


@pytest.mark.parametrize("transform", [0, 2])
def test_cmyk_with_adobes_marker(transform, tmp_path):
    data = saved(COLOR.convert("CMYK"), "JPEG", quality=95)
    at = data.index(b"Adobe")
    data = data[: at + 11] + bytes([transform]) + data[at + 12 :]
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_image(written(tmp_path / "print.jpg", data)), expected)


def test_a_jpeg_that_takes_hours_is_refused(tmp_path):
    data = saved(COLOR, "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    scans = data[:at] + data[at:-2] * 200 + b"\xff\xd9"
    refused(read_image, written(tmp_path / "a.jpg", scans), "a JPEG of more than 100 scans")
    segments = data[:2] + b"\xff\xfe\0\2" * 20_000 + data[2:]
    refused(read_image, written(tmp_path / "b.jpg", segments), "more than 10000 segments")
    assert read_image(written(tmp_path / "c.jpg", data)).shape == PIXELS.shape


def test_a_bmp_whose_escape_fills_the_memory_is_refused(tmp_path):
    info = struct.pack("<IiiHHIIiiII", 40, 200_000_000, 1, 1, 8, 1, 0, 0, 0, 0, 0)
    escape = b"\0\2\xff\xff"  # 255 to the right and 255 down: 51 GB
    data = b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024) + info + bytes(1024) + escape
    refused(read_image, written(tmp_path / "a.bmp", data), "in run-length codes, wider than 65536")
    sound = written(tmp_path / "b.bmp", seeds()["bmp rle 8"])
    assert read_image(sound).shape == (8, 32, 3)


# Several pictures in one file


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_of_several_pictures_a_photograph_is_the_first(kind, tmp_path):
    options = {"lossless": True} if kind == "WEBP" else {}
    others = [COLOR.rotate(180), COLOR.rotate(90)]
    data = saved(COLOR, kind, save_all=True, append_images=others, **options)
    np.testing.assert_array_equal(read_image(written(tmp_path / "several", data)), PIXELS)


def test_a_label_map_is_one_alone(tmp_path):
    gray = label_map()
    pages = saved(gray, "TIFF", save_all=True, append_images=[gray, gray])
    refused(read_labels, written(tmp_path / "pages.tif", pages), "of several pages; give a file")
    animated = tmp_path / "animated.png"
    first = Image.new("L", (9, 7), 1)
    first.save(animated, save_all=True, append_images=[Image.new("L", (9, 7), 2)])
    refused(read_labels, animated, "of several pages; give a file")
    first.save(tmp_path / "one.png")
    assert (read_labels(tmp_path / "one.png") == 1).all()
    blurred = saved(gray, "TIFF", compression="jpeg")
    refused(read_labels, written(tmp_path / "blurred.tif", blurred), "a JPEG label map")


# MATLAB's files


def test_decoders_write_nothing_behind_our_back(tmp_path, capfd):
    """libtiff and Pillow's log have opinions on damaged files; stderr is for our one line."""
    for name in ("tiff group 4", "tiff labels deflate", "tiff jpeg", "tiff lzw", "tiff packbits"):
        data = bytearray(seeds()[name])
        for at in range(8, min(len(data), 160), 3):
            data[at] ^= 0x55
            path = written(tmp_path / "photo.tif", data)
            with suppress(ValueError):
                read_image(path)
            data[at] ^= 0x55
    assert capfd.readouterr().err == ""
