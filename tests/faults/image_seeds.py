"""Small sound files of every format that the loaders take, for a fuzzer to damage."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageCms
from scipy.io import savemat

HEIGHT, WIDTH = 37, 53


def photograph():
    """A gradient with noise: neither flat nor incompressible."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    pixels = np.stack([4 * y, 4 * x, 2 * (x + y)], axis=2)
    noise = np.random.default_rng(0).integers(0, 20, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


def label_map():
    return Image.fromarray(np.kron(np.arange(6).reshape(2, 3), np.ones((18, 17))).astype(np.uint8))


def saved(image, kind, **options):
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_by_hand(pixels, *, depth=8, interlaced=False, extra=b""):
    """A colour PNG as Pillow does not write them: of 16 bits, or in Adam7's seven passes."""
    rows = b""
    steps = [(0, 0, 1, 1)]
    if interlaced:
        steps = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
        steps.append((1, 0, 2, 1))
    for top, left, down, right in steps:
        for row in pixels[top::down, left::right]:
            if row.size:
                values = np.repeat(row[..., None], 2, axis=-1) if depth == 16 else row
                rows += b"\0" + values.tobytes()
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, int(interlaced))
    body = png_chunk(b"IHDR", header) + extra + png_chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + png_chunk(b"IEND", b"")


def bmp_rle(bits):
    """A run-length coded BMP: runs, literals, an escape that moves on, the end of each row."""
    width, height = 32, 8
    row = b"\x08\x01" + b"\x00\x04\x01\x02\x03\x04"[: 6 if bits == 8 else 4] + b"\x04\x02"
    data = (row + b"\x00\x02\x02\x00" + b"\x06\x03" + b"\x00\x00") * height + b"\x00\x01"
    palette = bytes(range(256)) * (4 if bits == 8 else 1)
    palette = palette[: 4 << bits]
    start = 14 + 40 + len(palette)
    info = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, 1 if bits == 8 else 2, len(data), 0, 0, 0, 0
    )
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + info + palette + data


def exif():
    tags = Image.Exif()
    tags[0x0112], tags[0x010F], tags[0x011A] = 6, "a camera", 72.0
    tags.get_ifd(0x8769)[0x9003] = "2026:01:01 00:00:00"
    tags.get_ifd(0x8825)[1] = "N"
    return tags.tobytes()


def mat(values, *, packed, names=True):
    written = io.BytesIO()
    cells = np.array(["sky", "tree", "a road"], object).reshape(-1, 1)
    variables = {"note": "hello", "S": values} | ({"names": cells} if names else {})
    savemat(written, variables, do_compression=packed)
    return written.getvalue()


def seeds():
    """Name every file: its bytes."""
    color, labels = photograph(), label_map()
    gray, palette = color.convert("L"), color.quantize(32)
    clear = color.copy()
    clear.putalpha(gray)
    deep = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    frames = {"save_all": True, "append_images": [color.rotate(90), color.rotate(180)]}
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("Comment", "text " * 50)
    text.add_text("Description", "packed " * 50, zip=True)
    text.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="3"/>')
    found = {
        "jpeg": saved(color, "JPEG"),
        "jpeg progressive": saved(color, "JPEG", progressive=True),
        "jpeg grey": saved(gray, "JPEG", quality=30),
        "jpeg cmyk": saved(color.convert("CMYK"), "JPEG"),
        "jpeg exif": saved(color, "JPEG", exif=exif(), icc_profile=icc),
        "jpeg 4:4:4 restarts": saved(color, "JPEG", subsampling=0, restart_marker_blocks=3),
        "jpeg mpo": saved(color, "MPO", **frames),
        "png grey": saved(gray, "PNG"),
        "png labels": saved(labels, "PNG"),
        "png palette": saved(palette, "PNG", transparency=3),
        "png two-valued": saved(gray.convert("1"), "PNG"),
        "png 16 bits": saved(deep, "PNG"),
        "png colour": saved(color, "PNG"),
        "png transparent": saved(clear, "PNG"),
        "png text icc exif": saved(color, "PNG", pnginfo=text, icc_profile=icc, exif=exif()),
        "png animated": saved(color, "PNG", **frames),
        "png interlaced": png_by_hand(np.asarray(color), interlaced=True),
        "png colour 16 bits": png_by_hand(np.asarray(color), depth=16),
        "tiff": saved(color, "TIFF"),
        "tiff labels": saved(labels, "TIFF"),
        "tiff lzw": saved(color, "TIFF", compression="tiff_lzw"),
        "tiff labels deflate": saved(labels, "TIFF", compression="tiff_adobe_deflate"),
        "tiff packbits": saved(palette, "TIFF", compression="packbits"),
        "tiff jpeg": saved(color, "TIFF", compression="jpeg"),
        "tiff group 4": saved(gray.convert("1"), "TIFF", compression="group4"),
        "tiff 16 bits": saved(deep, "TIFF"),
        "tiff cmyk": saved(color.convert("CMYK"), "TIFF"),
        "tiff exif": saved(color, "TIFF", exif=exif()),
        "tiff pages": saved(gray, "TIFF", save_all=True, append_images=[gray, gray]),
        "tiff big": saved(color, "TIFF", big_tiff=True),
        "webp": saved(color, "WEBP"),
        "webp lossless": saved(color, "WEBP", lossless=True),
        "webp transparent": saved(clear, "WEBP", exif=exif(), icc_profile=icc),
        "webp animated": saved(color, "WEBP", **frames),
        "bmp": saved(color, "BMP"),
        "bmp palette": saved(palette, "BMP"),
        "bmp two-valued": saved(gray.convert("1"), "BMP"),
        "bmp transparent": saved(clear, "BMP"),
        "bmp rle 8": bmp_rle(8),
        "bmp rle 4": bmp_rle(4),
    }
    values = np.asarray(labels)
    return found | {
        "mat packed": mat(values, packed=True),
        "mat": mat(values, packed=False),
        "mat double": mat(values.astype(float), packed=False, names=False),
        "mat 16 bits": mat(values.astype(np.uint16), packed=True),
    }
