"""What of an image file a decoder is shown: its pixels, and nothing that was packed beside them.

Metadata is where damaged and hostile files do their harm (a text that unpacks to gigabytes, EXIF
whose entries all point to the same megabyte, thousands of segments) and where sound ones are
refused for nothing (a wrong checksum of a comment, a large colour profile). So the orientation is
read here and the rest left out, before any decoder opens the file.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from scaseg.data.decode.orientation import UPRIGHT, orientation

# More than any camera or editor writes; a walk through so many takes a second
MOST_SEGMENTS, MOST_CHUNKS = 10_000, 1_000_000
MOST_SCANS = 100  # of a progressive JPEG, as libvips has it: each costs a pass over all pixels
MOST_TEXT = 1 << 20  # bytes of metadata in which an orientation is looked for
MOST_CODED = 1 << 16  # pixels in a row of a run-length coded BMP
HEAD = 1 << 18  # bytes in which a header is looked for first

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKER_AFTER_DATA = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # restarts are part of the data
_START, _END, _SCAN, _APP1, _ADOBE, _COMMENT = 0xD8, 0xD9, 0xDA, 0xE1, 0xEE, 0xFE
_ALONE = (0x01, *range(0xD0, 0xD9))  # markers without a length

PNG = b"\x89PNG\r\n\x1a\n"
_NEEDED = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_RAW_EXIF = (b"Raw profile type exif\0", b"Raw profile type APP1\0")  # as ImageMagick writes it
_XMP_TEXT = b"XML:com.adobe.xmp\0\0\0\0\0"


class Contents(NamedTuple):
    """A file as a decoder is shown it, which way up it is, and its (width, height) if known.

    more: it had other pictures beside this one, which a decoder is not shown.
    """

    file: BinaryIO
    orientation: int = UPRIGHT
    size: tuple[int, int] | None = None
    more: bool = False


def jpeg(file: BinaryIO, *, header: bool) -> Contents:
    """Keep what libjpeg needs, up to the end of the first image; header: up to its first scan."""
    data = file.read(HEAD if header else -1)
    try:
        return _jpeg(data, header=header)
    except EOFError:  # metadata larger than HEAD
        return _jpeg(data + file.read(), header=header)


def _jpeg(data: bytes, *, header: bool) -> Contents:
    kept, exif, xmp = [data[:2]], b"", b""
    at, scans = 2, 0
    for _ in range(MOST_SEGMENTS):
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
            if scans > MOST_SCANS:
                raise ValueError(f"a JPEG of more than {MOST_SCANS} scans")
            after = None if header else _MARKER_AFTER_DATA.search(data, end)
            stop = after.start() if after else len(data)
            kept.append(data[at:stop])
            if header:
                break
            end = stop
        elif code == _APP1:
            block = data[at + 4 : end]
            if block.startswith(b"Exif\0\0"):
                exif = exif or block
            elif block.startswith(b"http://ns.adobe.com/xap/1.0/\0"):
                xmp = xmp or block
        elif not (_APP1 < code < _ADOBE or code in (0xEF, _COMMENT)):
            kept.append(data[at:end])
        at = end
    else:
        raise ValueError(f"a JPEG of more than {MOST_SEGMENTS} segments")
    if header and not scans and len(data) == HEAD:
        raise EOFError
    return Contents(io.BytesIO(b"".join(kept)), orientation(exif, xmp))


def png(file: BinaryIO, *, header: bool) -> Contents:
    """Keep the chunks that make the pixels, their checksums proven; header: without the pixels.

    The first image of an animated PNG is its IDAT, and that is the one that is kept.
    """
    kept, exif, xmp = [PNG], b"", b""
    at_pixels = more = False
    for length, kind in _chunks(file):
        if header and (at_pixels or kind == b"IDAT") and kind != b"eXIf":
            if not at_pixels:
                kept.append(struct.pack(">I", length) + kind)  # a decoder stops here
            at_pixels = True
            file.seek(length + 4, io.SEEK_CUR)
        elif kind in _NEEDED:
            body, check = file.read(length), file.read(4)
            if len(check) == 4 and zlib.crc32(kind + body) != int.from_bytes(check):
                raise ValueError(f"its {kind.decode()} chunk is damaged, the checksum is wrong")
            kept += [struct.pack(">I", length) + kind, body, check]
        elif length <= MOST_TEXT and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
            body = file.read(length + 4)[:length]
            exif = exif or _png_exif(kind, body)
            if kind == b"iTXt" and body.startswith(_XMP_TEXT):
                xmp = xmp or body
        else:
            more |= kind == b"fdAT"  # a frame after the first
            file.seek(length + 4, io.SEEK_CUR)
    return Contents(io.BytesIO(b"".join(kept)), orientation(exif, xmp), more=more)


def _chunks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Go from chunk to chunk; whoever asks for the next has read or passed over this one."""
    end = file.seek(0, io.SEEK_END)
    file.seek(len(PNG))
    for _ in range(MOST_CHUNKS):
        start = file.read(8)
        if len(start) < 8:
            return
        # Python makes room for as much as it is asked to read, whatever the file has
        length, kind = min(int.from_bytes(start[:4]), end), start[4:]
        yield length, kind
        if kind == b"IEND":
            return
    raise ValueError(f"a PNG of more than {MOST_CHUNKS} chunks")


def _png_exif(kind: bytes, body: bytes) -> bytes:
    if kind == b"eXIf":
        return body
    name = next((name for name in _RAW_EXIF if body.startswith(name)), None)
    if name is None or kind == b"iTXt":
        return b""
    text = body[len(name) :]
    try:
        if kind == b"zTXt":
            text = zlib.decompressobj().decompress(text[1:], MOST_TEXT)
        # a line feed, the name, the length, then lines of hexadecimal digits
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except (zlib.error, ValueError):
        return b""


def webp(file: BinaryIO, *, header: bool) -> Contents:
    """Tell the size of the canvas, which the decoder allocates when it opens the file."""
    data = file.read(30)
    size = None
    if data[12:16] == b"VP8X":
        size = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    elif data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif data[12:16] == b"VP8 ":
        width, height = struct.unpack_from("<HH", data.ljust(30, b"\0"), 26)
        size = width & 0x3FFF, height & 0x3FFF
    return Contents(file, size=size)


def bmp(file: BinaryIO, *, header: bool) -> Contents:
    """Refuse run-length codes of very long rows: Pillow makes room for 255 at one escape."""
    data = file.read(34)
    width, coded = data[18:22], data[30:34] in (b"\1\0\0\0", b"\2\0\0\0")
    if coded and abs(int.from_bytes(width, "little", signed=True)) > MOST_CODED:
        raise ValueError(f"a BMP in run-length codes, wider than {MOST_CODED} pixels")
    return Contents(file)
