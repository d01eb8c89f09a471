"""Open files that may be damaged or hostile: by content, within limits, errors in one line.

Damaged and hostile images do their harm in metadata (a text that unpacks to gigabytes, EXIF whose
entries all point to the same megabyte, thousands of segments), and sound ones are refused for it
(a wrong checksum of a comment, a large colour profile). So the orientation is read here and a
decoder gets JPEG and PNG without it. ValueErrors are worded by open_untrusted.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from scaseg.errors import UserError, one_line
from scaseg.io.paths import open_regular, shown

# A photograph of 12,000 x 9,000 has 108 million; more than this is held by few machines, and is a
# decompression bomb more often than a photograph
MAX_PIXELS = 250_000_000
MAX_READS = 32_768  # of metadata: a directory of 4,096 entries, twice for its data, some times over
ORIENTATION = 0x0112  # the EXIF tag
UPRIGHT = 1
# More than any camera or editor writes; a walk through so many takes a second
MAX_SEGMENTS, MAX_CHUNKS = 10_000, 1_000_000
MAX_SCANS = 100  # of a progressive JPEG, as in libvips: each costs a pass over all pixels
MAX_TEXT = 1 << 20  # bytes of metadata that are searched for an orientation
HEAD = 1 << 18  # bytes of a JPEG that are searched for its header first

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKER_AFTER_DATA = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # restarts are part of the data
_END, _SCAN, _APP1 = 0xD9, 0xDA, 0xE1
_ALONE = (0x01, *range(0xD0, 0xD9))  # markers without a length
_DROPPED = (*range(0xE2, 0xEE), 0xEF, 0xFE)  # profiles and comments; 0xEE is Adobe's colour space
_NEEDED = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')
Stripped = tuple[BinaryIO, int, bool]  # without metadata; orientation; whether it had more pictures

# Recognized by content; nothing else that Pillow supports is decoded
_STARTS = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "BMP": rb"BM",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "WEBP": rb"RIFF....WEBP",
}
FORMATS = tuple(_STARTS)
SAVE = f"save it as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
_TEXT = rb"(?:\xef\xbb\xbf)?\s*"
# What people do find under a name that ends in .jpg, and what they can do about it
_OTHERS = (
    (rb"\x93NUMPY", "an array of NumPy", "give data.bands, the number of its bands"),
    (rb"GIF8", "a GIF", SAVE),
    (rb"%PDF", "a PDF", SAVE),
    (rb"%!PS|\xc5\xd0\xd3\xc6", "PostScript (EPS)", SAVE),
    (rb"....ftyp(?:hei|hev|mif|msf)", "HEIC, as phones write it", SAVE),
    (rb"....ftypavi", "AVIF", SAVE),
    (rb"....ftyp", "a film", SAVE),
    (rb"\x00\x00\x00\x0cJXL|\xff\x0a", "JPEG XL", SAVE),
    (rb"\x00\x00\x00\x0cjP|\xff\x4f\xff\x51", "JPEG 2000", SAVE),
    (rb"8BPS", "Photoshop's own (PSD)", SAVE),
    (rb"PK\x03\x04", "an archive (ZIP)", "unpack it"),
    (rb"\x89HDF", "HDF5", SAVE),
    (rb"version https://git-lfs", "a pointer of Git LFS", "run `git lfs pull`"),
    (_TEXT + rb"(?:<\?xml[^>]*>\s*)?(?:<!.{0,300}?>\s*)*<svg", "SVG, a drawing", SAVE),
    (_TEXT + rb"<(?:!doctype|html|head|body)", "a web page (HTML)", "fetch it again"),
    (_TEXT + rb"<\?xml", "XML", "fetch it again"),
    (rb"$", "empty", "fetch it again"),
)


class Embedded(NamedTuple):
    """The bytes of an image that is part of another file, and where it stands there."""

    data: bytes
    place: str


@contextmanager
def open_untrusted(path: str | Path | Embedded, remedy: str) -> Iterator[BinaryIO]:
    """Open a regular file; whatever fails within is a UserError of one line that names it.

    UserErrors without a place get the file's name. All other errors, of a decoder or of ours, mean
    that the file "cannot be read", with their text as the detail.
    """
    opened: BinaryIO
    if isinstance(path, Embedded):
        opened, place = io.BytesIO(path.data), path.place
    else:
        opened, place = open_regular(path), shown(path)
    with opened as file:
        try:
            yield file
        except UserError as error:
            raise error.within(place) from error
        except Exception as error:  # a decoder given a damaged file raises anything
            detail = one_line(str(error)) or type(error).__name__
            raise UserError(place, "cannot be read", remedy, detail) from error


def image_format(start: bytes) -> str:
    """Return the format by the first bytes; the UserError says what the file is instead."""
    for name, pattern in _STARTS.items():
        if re.match(pattern, start, re.DOTALL):
            return name
    for pattern, other, remedy in _OTHERS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            raise UserError("", "not an image", remedy, f"it is {other}")
    raise not_an_image()


def not_an_image() -> UserError:
    """Return the error for a file of unknown format."""
    return UserError("", "not an image", f"{', '.join(FORMATS)} are read")


def max_bytes(pixels: int) -> int:
    """Return the size of the largest file of so many pixels: 4 channels of 16 bits, metadata."""
    return 8 * pixels + (1 << 26)


def require_bytes(file: BinaryIO, limit: int) -> None:
    """Raise a UserError if a file is far larger than an image of so many pixels can be."""
    size, most = _length(file), max_bytes(limit)
    if size > most:
        remedy = f"at most {most} are taken for {limit} pixels, raise --max-pixels or save it again"
        raise UserError("", f"{size} bytes", remedy)


def _length(file: BinaryIO) -> int:
    at, end = file.tell(), file.seek(0, io.SEEK_END)
    file.seek(at)
    return end


def require_pixels(width: int, height: int, limit: int) -> None:
    """Raise a UserError if an image has more pixels than the limit."""
    if width * height > limit:
        remedy = f"at most {limit} are taken, raise --max-pixels or make it smaller"
        raise UserError("", f"{width} x {height} pixels", remedy)
    if width < 1 or height < 1:
        raise ValueError(f"{width} x {height} pixels")


class Metered:
    """A TIFF file whose directories may claim no more data than there are, for Pillow to read.

    Pillow copies what every entry of a directory points to: thousands of entries that share one
    megabyte take gigabytes. In a sound file every byte belongs to one entry at most, and Pillow
    reads a directory three times. It would also go on without the entries that it cannot read.
    """

    def __init__(self, file: BinaryIO, max_pixels: int) -> None:
        size = min(_length(file), max_bytes(max_pixels))
        self._file = file
        self._bytes, self._reads = 4 * size + (1 << 16), MAX_READS
        self.is_metered = True  # False: what follows are pixels

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._bytes -= len(data)
        self._reads -= 1
        if self.is_metered and (len(data) < size or self._bytes < 0 or self._reads < 0):
            raise ValueError("its directories claim more data than the file has")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def find_orientation(exif: bytes, xmp: bytes = b"") -> int:
    """Return the orientation, 1 to 8; damaged or missing metadata is upright.

    >>> find_orientation(b"", b'<rdf:Description tiff:Orientation="6"/>')
    6
    """
    block, found = exif.removeprefix(b"Exif\0\0"), None
    with suppress(struct.error, KeyError):  # cut off, no EXIF, no number
        order = {b"II": "<", b"MM": ">"}[block[:2]]
        (start,) = struct.unpack_from(f"{order}I", block, 4)
        (entries,) = struct.unpack_from(f"{order}H", block, start)
        # the first directory, whatever else is wrong with it: Pillow gives up at an error
        for at in range(start + 2, start + 2 + 12 * entries, 12):
            tag, kind, count = struct.unpack_from(f"{order}HHI", block, at)
            if tag == ORIENTATION and count:
                form = {1: "B", 3: "H", 4: "I"}[kind]
                (found,) = struct.unpack_from(order + form, block, at + 8)
                break
    if found is None and (match := _XMP.search(xmp)):
        found = int(match[1])
    return found if found and found <= 8 else UPRIGHT


def strip_jpeg(file: BinaryIO, *, header: bool) -> Stripped:
    """Keep what libjpeg needs, up to the end of the first image; header: up to its first scan."""
    data = file.read(HEAD if header else -1)
    kept, exif, xmp = [data[:2]], b"", b""
    at, scans = 2, 0
    for _ in range(MAX_SEGMENTS):
        if len(data) - at < HEAD // 2:  # where metadata are larger than HEAD; a segment has 64 KiB
            data += file.read()
        found = _MARKER.search(data, at)
        if found is None:
            break
        at, code = found.start(), data[found.start() + 1]
        if code in _ALONE:
            at += 2
            continue
        if code == _END:
            kept.append(b"\xff\xd9")
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if code == _SCAN:
            scans += 1
            if scans > MAX_SCANS:
                raise ValueError(f"a JPEG of more than {MAX_SCANS} scans")
            after = None if header else _MARKER_AFTER_DATA.search(data, end)
            end = after.start() if after else len(data)
        block = data[at:end]
        if code == _APP1:
            if block.startswith(b"Exif\0\0", 4):
                exif = exif or block[4:]
            elif block.startswith(b"http://ns.adobe.com/xap/1.0/\0", 4):
                xmp = xmp or block
        elif code not in _DROPPED:
            kept.append(block)
        if header and scans:
            break
        at = end
    else:
        raise ValueError(f"a JPEG of more than {MAX_SEGMENTS} segments")
    return io.BytesIO(b"".join(kept)), find_orientation(exif, xmp), False


def strip_png(file: BinaryIO, *, header: bool) -> Stripped:
    """Keep the chunks that make the pixels, their checksums verified; header: without the pixels.

    The first image of an animated PNG is its IDAT, and that is the one that is kept.
    """
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    kept, exif, xmp, several = [file.read(8)], b"", b"", False
    for _ in range(MAX_CHUNKS):
        start = file.read(8)
        # Python allocates as much as it is asked to read, whatever the file has
        length, kind = min(int.from_bytes(start[:4]), end), start[4:]
        if header and kind == b"IDAT":
            kept.append(start)  # a decoder stops here
            file.seek(length + 4, io.SEEK_CUR)
        elif kind in _NEEDED:
            body, check = file.read(length), file.read(4)
            if len(check) == 4 and zlib.crc32(kind + body) != int.from_bytes(check):
                raise ValueError(f"its {kind.decode()} chunk is damaged, the checksum is wrong")
            kept += [start[:4], kind, body, check]
        elif length <= MAX_TEXT and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
            body = file.read(length + 4)[:length]
            exif = exif or _png_exif(kind, body)
            if kind == b"iTXt" and body.startswith(b"XML:com.adobe.xmp\0\0\0\0\0"):
                xmp = xmp or body
        else:
            several |= kind == b"fdAT"  # a frame after the first
            file.seek(length + 4, io.SEEK_CUR)
        if kind == b"IEND" or len(start) < 8:
            return io.BytesIO(b"".join(kept)), find_orientation(exif, xmp), several
    raise ValueError(f"a PNG of more than {MAX_CHUNKS} chunks")


def _png_exif(kind: bytes, body: bytes) -> bytes:
    if kind == b"eXIf":
        return body
    name, _, text = body.partition(b"\0")
    if kind == b"iTXt" or name not in (b"Raw profile type exif", b"Raw profile type APP1"):
        return b""
    try:  # as ImageMagick writes it
        if kind == b"zTXt":
            text = zlib.decompressobj().decompress(text[1:], MAX_TEXT)
        # a line feed, the name, the length, then lines of hexadecimal digits
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except (zlib.error, ValueError):
        return b""


def webp_size(start: bytes) -> tuple[int, int]:
    """Return width and height, which the decoder allocates when it opens the file."""
    if start[12:16] == b"VP8X":
        width, height = start[24:27], start[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if start[12:16] == b"VP8L":
        bits = int.from_bytes(start[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", start.ljust(30, b"\0"), 26)
    return width & 0x3FFF, height & 0x3FFF
